// SPDX-License-Identifier: Apache-2.0
// Tables made in memory: every required slot taken away in turn.
#include "loader/slots.h"

#include <cstring>

#include "unit/loading/fakes.h"

namespace {

using anyattn::loader::Refusal;

// Any non-null pointer will do: nothing here is called.
template <typename Fn>
void fill(Fn*& slot) {
  slot = reinterpret_cast<Fn*>(0x1000);
}

anyattn_backend plain_backend() {
  anyattn_backend table{};
  table.struct_size = ANYATTN_BACKEND_SIZE;
  table.device_kind = ANYATTN_DEVICE_CPU;
  table.name = "TEST_ATTN";
  fill(table.supports);
  fill(table.kv_cache_spec);
  fill(table.impl_create);
  fill(table.impl_destroy);
  fill(table.memory);
  fill(table.warmup);
  fill(table.metadata_create);
  fill(table.metadata_update);
  fill(table.metadata_destroy);
  fill(table.kv_cache_update);
  fill(table.forward);
  return table;
}

anyattn_backend mla_backend() {
  anyattn_backend table = plain_backend();
  table.forward = nullptr;
  fill(table.forward_mqa);
  fill(table.context_gather);
  fill(table.forward_mha);
  return table;
}

anyattn_device_provider provider() {
  anyattn_device_provider table{};
  table.struct_size = ANYATTN_DEVICE_PROVIDER_SIZE;
  table.device_kind = ANYATTN_DEVICE_CUDA;
  table.name = "cuda";
  // Function pointers follow each other from the name to the end.
  auto* slots = reinterpret_cast<unsigned char*>(&table);
  for (size_t at = offsetof(anyattn_device_provider, enumerate); at < sizeof table; at += sizeof(void*)) {
    const uintptr_t any = 0x1000;
    std::memcpy(slots + at, &any, sizeof any);
  }
  return table;
}

std::string refusal_of(const anyattn_backend& table) {
  try {
    anyattn::loader::read_backend(&table, 0);
    return "";
  } catch (const Refusal& refusal) {
    CHECK(refusal.status == ANYATTN_ABI_MISMATCH);
    return refusal.reason;
  }
}

std::string refusal_of(const anyattn_device_provider& table) {
  try {
    anyattn::loader::read_provider(&table, 0);
    return "";
  } catch (const Refusal& refusal) {
    return refusal.reason;
  }
}

struct Slot {
  const char* name;
  size_t offset;
};

template <typename Table>
Table without(Table table, const Slot& slot) {
  std::memset(reinterpret_cast<unsigned char*>(&table) + slot.offset, 0, sizeof(void*));
  return table;
}

#define SLOT(type, name) {#name, offsetof(type, name)}

}  // namespace

TEST_CASE("abi_11_required_slots_are_present") {
  CHECK(refusal_of(plain_backend()) == "");
  CHECK(refusal_of(mla_backend()) == "");
  const std::vector<Slot> common = {
      SLOT(anyattn_backend, supports),        SLOT(anyattn_backend, kv_cache_spec),   SLOT(anyattn_backend, impl_create),
      SLOT(anyattn_backend, impl_destroy),    SLOT(anyattn_backend, memory),          SLOT(anyattn_backend, warmup),
      SLOT(anyattn_backend, metadata_create), SLOT(anyattn_backend, metadata_update), SLOT(anyattn_backend, metadata_destroy),
      SLOT(anyattn_backend, kv_cache_update),
  };
  for (const Slot& slot : common) {
    CAPTURE(slot.name);
    for (const anyattn_backend& table : {plain_backend(), mla_backend()}) {
      fakes::check_parts(refusal_of(without(table, slot)), {"TEST_ATTN", "lacks the required", slot.name});
    }
  }
  fakes::check_parts(refusal_of(without(plain_backend(), SLOT(anyattn_backend, forward))),
                     {"lacks the required forward", "MLA"});
  const std::vector<Slot> mla = {SLOT(anyattn_backend, forward_mqa), SLOT(anyattn_backend, context_gather),
                                 SLOT(anyattn_backend, forward_mha)};
  for (const Slot& slot : mla) {
    CAPTURE(slot.name);
    fakes::check_parts(refusal_of(without(mla_backend(), slot)), {"lacks the required", slot.name});
  }
}

TEST_CASE("a_backend_is_plain_or_mla_never_both") {
  anyattn_backend table = mla_backend();
  fill(table.forward);
  fakes::check_parts(refusal_of(table), {"has forward and forward_mqa, context_gather, forward_mha", "never both"});
  CHECK(anyattn::loader::read_backend(&static_cast<const anyattn_backend&>(table = mla_backend()), 0).is_mla);
}

TEST_CASE("a_backend_for_ragged_keys_has_no_cache_slots") {
  anyattn_backend table = plain_backend();
  table.kv_cache_spec = nullptr;
  table.kv_cache_update = nullptr;
  CHECK(refusal_of(table) == "");
}

TEST_CASE("backend_names_and_kinds_are_checked") {
  anyattn_backend table = plain_backend();
  for (const char* name : {"", "cpu_attn", "_X", "9ATTN", "CPU ATTN", "CPU-ATTN", "CPU_ATTN\n"}) {
    table.name = name;
    CAPTURE(name);
    fakes::check_parts(refusal_of(table), {"is called '", "[A-Z][A-Z0-9_]*"});
  }
  table.name = nullptr;
  fakes::check_parts(refusal_of(table), {"the name of backend 0", "is null"});
  const std::string endless(5000, 'A');
  table.name = endless.c_str();
  fakes::check_parts(refusal_of(table), {"longer than 4096 bytes"});
  table = plain_backend();
  table.device_kind = 77;
  fakes::check_parts(refusal_of(table), {"TEST_ATTN", "device kind 77"});
  try {
    anyattn::loader::read_backend(nullptr, 3);
    FAIL("a null table was read");
  } catch (const Refusal& refusal) {
    fakes::check_parts(refusal.reason, {"backend 3", "is null"});
  }
}

TEST_CASE("abi_12_absent_optional_slot_has_its_default") {
  anyattn_backend table = plain_backend();
  CHECK_FALSE(static_cast<bool>(anyattn::loader::read_backend(&table, 0).table.update_block_table));
  CHECK_FALSE(static_cast<bool>(anyattn::loader::read_backend(&table, 0).table.merge_states));
  CHECK(anyattn::loader::read_backend(&table, 0).description.empty());
  anyattn_device_provider without_graphs = provider();
  without_graphs.struct_size = ANYATTN_END_OFFSET(anyattn_device_provider, event_elapsed);
  CHECK_FALSE(anyattn::loader::read_provider(&without_graphs, 0).has_graphs);
  anyattn_device_provider whole = provider();
  CHECK(anyattn::loader::read_provider(&whole, 0).has_graphs);
}

TEST_CASE("provider_slots_are_required_up_to_the_graphs") {
  CHECK(refusal_of(provider()) == "");
  for (size_t at = offsetof(anyattn_device_provider, enumerate); at < sizeof(anyattn_device_provider); at += sizeof(void*)) {
    CAPTURE(at);
    fakes::check_parts(refusal_of(without(provider(), {"", at})), {"device provider cuda", "lacks the required"});
  }
  anyattn_device_provider table = provider();
  table.device_kind = ANYATTN_DEVICE_CPU;
  fakes::check_parts(refusal_of(table), {"built into the host"});
  table = provider();
  table.name = "hip";
  fakes::check_parts(refusal_of(table), {"device kind called cuda"});
  table = provider();
  table.struct_size = 8;
  fakes::check_parts(refusal_of(table), {"anyattn_device_provider", "struct_size 8"});
}
