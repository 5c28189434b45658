// SPDX-License-Identifier: Apache-2.0
#include "bench/noop_backend.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "common/failure.h"

namespace anyattn::tools::bench {
namespace {

void ignore(void*, int32_t, const char*) {}

int32_t run_at_once(void*, uint64_t count, uint64_t, anyattn_range_fn fn, void* argument) {
  fn(argument, 0, count, 0);
  return ANYATTN_OK;
}

// The least a plugin may ask of a host.
const anyattn_host* plain_host() {
  static const anyattn_cpu_facts cpu = [] {
    anyattn_cpu_facts facts{};
    facts.struct_size = ANYATTN_CPU_FACTS_SIZE;
    return facts;
  }();
  static const anyattn_host host = [] {
    anyattn_host table{};
    table.struct_size = ANYATTN_HOST_SIZE;
    table.abi_version = ANYATTN_ABI_VERSION_CURRENT;
    table.log = ignore;
    table.parallel_for = run_at_once;
    table.num_workers = 1;
    table.cpu = &cpu;
    return table;
  }();
  return &host;
}

}  // namespace

std::string noop_plugin_path() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path path = program.parent_path().parent_path() / "lib/anyattn/bench/anyattn_noop.so";
  if (!std::filesystem::exists(path, error)) {
    throw Failure(kExitFailed, fmt::format("bench: {} is missing; it is installed with this program", path.string()));
  }
  return path.string();
}

NoopBackend::NoopBackend(const std::string& plugin_path) {
  // Never closed, as the runtime never closes it either.
  void* library = dlopen(plugin_path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Failure(kExitFailed, fmt::format("bench: {}", dlerror()));
  const auto entry = reinterpret_cast<anyattn_plugin_entry_fn>(dlsym(library, ANYATTN_PLUGIN_ENTRY_NAME));
  const anyattn_plugin* plugin = nullptr;
  const bool entered =
      entry && entry(ANYATTN_ABI_VERSION_CURRENT, ANYATTN_ABI_VERSION_CURRENT, plain_host(), &plugin, nullptr) == ANYATTN_OK;
  if (!entered) throw Failure(kExitFailed, fmt::format("bench: {} is not the plugin built with this program", plugin_path));
  table_ = plugin->backends[0];
  anyattn_limits limits{};
  limits.struct_size = ANYATTN_LIMITS_SIZE;
  if (table_->impl_create(plain_host(), nullptr, nullptr, nullptr, &impl_, nullptr) != ANYATTN_OK ||
      table_->metadata_create(impl_, &limits, ANYATTN_METADATA_NORMAL, nullptr, nullptr, &metadata_, nullptr) != ANYATTN_OK) {
    throw Failure(kExitFailed, "bench: no memory for the no-op backend");
  }
}

NoopBackend::~NoopBackend() {
  table_->metadata_destroy(metadata_);
  table_->impl_destroy(impl_);
}

}  // namespace anyattn::tools::bench
