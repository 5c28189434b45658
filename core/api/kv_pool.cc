// SPDX-License-Identifier: Apache-2.0
// The C API of kv_pool.h: checks what crosses it, takes the device memory, and leaves the rest to cache/.
#include "anyattn/kv_pool.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "anyattn/util.h"
#include "cache/block_manager.h"
#include "cache/page_layout.h"

using anyattn::cache::BlockManager;
using anyattn::cache::ContentHash;
using anyattn::cache::GroupLayout;
using anyattn::cache::GroupNeed;
using anyattn::cache::GroupShape;
using anyattn::cache::PageLayout;
using anyattn::cache::PoolShape;

namespace {

using ull = unsigned long long;

// A spec that outlives the group it came from.
struct OwnedSpec {
  anyattn_kv_cache_spec spec{};
  std::vector<anyattn_plane> planes;
  std::string name;
};

struct PoolGroup {
  std::unique_ptr<OwnedSpec> spec;
  GroupLayout layout;
  uint32_t num_layers = 0;
  uint64_t num_kernel_blocks = 0;
  uint64_t block_bytes = 0;  // of a manager block with all layers and padding
};

struct DeviceMemory {
  anyattn_runtime* runtime = nullptr;
  uint32_t kind = 0;
  int32_t ordinal = 0;
  uint64_t bytes = 0;
  void* base = nullptr;

  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() {
    if (base) anyattn_device_free(runtime, kind, ordinal, base);
  }
};

}  // namespace

struct anyattn_kv_pool {
  DeviceMemory memory;
  PageLayout layout;
  std::vector<PoolGroup> groups;
  std::unique_ptr<BlockManager> blocks;
};

namespace {

// Anything the standard library throws on a cold path becomes a status.
template <class Body>
int32_t guarded(const char* call, anyattn_error* error, Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return anyattn_error_set(error, ANYATTN_OUT_OF_MEMORY, "kv pool: %s: no host memory left for the tables", call);
  } catch (const std::exception& e) {
    return anyattn_error_set(error, ANYATTN_INTERNAL, "kv pool: %s: %s", call, e.what());
  }
}

std::unique_ptr<OwnedSpec> copy_spec(const anyattn_kv_cache_spec& given) {
  auto own = std::make_unique<OwnedSpec>();
  own->planes.resize(given.num_planes);
  for (uint32_t i = 0; i < given.num_planes; ++i) {
    const auto* plane = reinterpret_cast<const char*>(given.planes) + size_t{i} * given.plane_stride;
    anyattn_read_struct(&own->planes[i], ANYATTN_PLANE_SIZE, plane);
  }
  own->name = given.name ? given.name : "";
  own->spec = given;
  own->spec.plane_stride = sizeof(anyattn_plane);
  own->spec.planes = own->planes.data();
  own->spec.name = own->name.c_str();
  own->spec.digest = anyattn_kv_cache_spec_digest(&own->spec);
  return own;
}

int32_t read_group(const anyattn_kv_pool_options& options, uint32_t index, PoolGroup* group, GroupShape* shape, GroupNeed* need,
                   anyattn_error* error) {
  anyattn_kv_group_options given;
  anyattn_read_struct(&given, ANYATTN_KV_GROUP_OPTIONS_SIZE,
                      reinterpret_cast<const char*>(options.groups) + size_t{index} * options.group_stride);
  const std::string label = given.label ? given.label : "group " + std::to_string(index);
  if (!given.spec || given.num_layers == 0) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "kv pool: %s has %s; each group needs layers and the spec of its cache", label.c_str(),
                             given.spec ? "0 layers" : "no spec");
  }
  anyattn_kv_cache_spec spec;
  anyattn_read_struct(&spec, ANYATTN_KV_CACHE_SPEC_SIZE, given.spec);
  if (spec.block_size == 0 || spec.block_bytes == 0 || spec.alignment == 0 || (spec.alignment & (spec.alignment - 1)) != 0 ||
      spec.num_planes == 0 || !spec.planes) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "kv pool: %s: spec with block_size %u, block_bytes %llu, alignment %u, %u planes; "
                             "each is more than 0 and alignment a power of two",
                             label.c_str(), spec.block_size, static_cast<ull>(spec.block_bytes), spec.alignment,
                             spec.num_planes);
  }
  const uint32_t block_size = given.block_size == 0 ? spec.block_size : given.block_size;
  if (block_size % spec.block_size != 0) {
    return anyattn_error_set(
        error, ANYATTN_INVALID_ARGUMENT,
        "kv pool: %s: manager block %u is no whole number of kernel blocks of %u; allowed: multiples of %u", label.c_str(),
        block_size, spec.block_size, spec.block_size);
  }
  if (given.window_left < -1) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "kv pool: %s: window_left %d; allowed: -1 (unlimited) or more",
                             label.c_str(), given.window_left);
  }
  *need = {given.num_layers, block_size / spec.block_size, spec.block_bytes, spec.alignment};
  *shape = {.block_size = block_size, .kernel_block_size = spec.block_size, .window_left = given.window_left, .label = label};
  group->spec = copy_spec(spec);
  group->num_layers = given.num_layers;
  return ANYATTN_OK;
}

// How many pages the budget buys, and whether ids and offsets of that many can be said.
int32_t count_pages(const anyattn_kv_pool_options& options, const std::vector<GroupNeed>& needs, const PageLayout& layout,
                    uint32_t* num_pages, anyattn_error* error) {
  uint64_t pages = options.budget_bytes / layout.page_bytes;
  uint64_t most_kernel_blocks = 1;  // in a page
  uint32_t fewest_blocks = UINT32_MAX;
  for (size_t g = 0; g < needs.size(); ++g) {
    most_kernel_blocks = std::max(most_kernel_blocks, uint64_t{layout.groups[g].blocks_per_page} * needs[g].ratio);
    fewest_blocks = std::min(fewest_blocks, layout.groups[g].blocks_per_page);
  }
  if (options.num_blocks > 0) pages = options.num_blocks / fewest_blocks + (options.num_blocks % fewest_blocks != 0);
  if (pages == 0) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "kv pool: a budget of %llu bytes does not hold one page of %llu",
                             static_cast<ull>(options.budget_bytes), static_cast<ull>(layout.page_bytes));
  }
  const uint64_t most_pages = std::min<uint64_t>(INT32_MAX / most_kernel_blocks, UINT64_MAX / layout.page_bytes);
  if (pages > most_pages) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "kv pool: %llu pages of %llu kernel blocks; block ids are 32 bits wide: at most %llu pages",
                             static_cast<ull>(pages), static_cast<ull>(most_kernel_blocks), static_cast<ull>(most_pages));
  }
  *num_pages = static_cast<uint32_t>(pages);
  return ANYATTN_OK;
}

int32_t check_options(const anyattn_kv_pool_options& options, anyattn_error* error) {
  if (options.num_groups == 0 || !options.groups || options.max_num_reqs == 0 || options.max_seq_len == 0 ||
      options.max_seq_len > INT32_MAX) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "kv pool: %u groups, max_num_reqs %u, max_seq_len %u; each is more than 0, max_seq_len below 2^31",
                             options.groups ? options.num_groups : 0, options.max_num_reqs, options.max_seq_len);
  }
  if ((options.budget_bytes == 0) == (options.num_blocks == 0)) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "kv pool: budget_bytes %llu and num_blocks %llu; exactly one of them is more than 0",
                             static_cast<ull>(options.budget_bytes), static_cast<ull>(options.num_blocks));
  }
  return ANYATTN_OK;
}

int32_t create(anyattn_runtime* runtime, const anyattn_kv_pool_options& options, anyattn_kv_pool** out, anyattn_error* error) {
  if (const int32_t status = check_options(options, error)) return status;
  auto pool = std::make_unique<anyattn_kv_pool>();
  PoolShape shape{.max_num_reqs = options.max_num_reqs,
                  .max_seq_len = options.max_seq_len,
                  .sharing = options.no_sharing == 0,
                  .groups = {}};
  shape.groups.resize(options.num_groups);
  pool->groups.resize(options.num_groups);
  std::vector<GroupNeed> needs(options.num_groups);
  for (uint32_t g = 0; g < options.num_groups; ++g) {
    if (const int32_t status = read_group(options, g, &pool->groups[g], &shape.groups[g], &needs[g], error)) return status;
  }
  if (const int32_t status = anyattn::cache::plan_pages(needs, &pool->layout, error)) return status;
  if (const int32_t status = count_pages(options, needs, pool->layout, &shape.num_pages, error)) return status;
  for (uint32_t g = 0; g < options.num_groups; ++g) {
    PoolGroup& group = pool->groups[g];
    group.layout = pool->layout.groups[g];
    group.num_kernel_blocks = uint64_t{shape.num_pages} * group.layout.blocks_per_page * needs[g].ratio;
    group.block_bytes = pool->layout.page_bytes / group.layout.blocks_per_page;
    shape.groups[g].blocks_per_page = group.layout.blocks_per_page;
  }
  DeviceMemory& memory = pool->memory;
  memory.runtime = runtime;
  memory.kind = options.device_kind;
  memory.ordinal = options.device_ordinal;
  memory.bytes = uint64_t{shape.num_pages} * pool->layout.page_bytes;
  if (const int32_t status = anyattn_device_alloc(runtime, memory.kind, memory.ordinal, memory.bytes, &memory.base, error))
    return status;

  std::random_device random;
  const auto word = [&random] { return uint64_t{random()} << 32 | random(); };
  const ContentHash key{word(), word()};
  pool->blocks = std::make_unique<BlockManager>(std::move(shape), key);
  *out = pool.release();
  return ANYATTN_OK;
}

int32_t missing(const char* call, const char* what, anyattn_error* error) {
  return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "kv pool: %s without %s", call, what);
}

int32_t check_group(const anyattn_kv_pool* pool, const char* call, uint32_t group, anyattn_error* error) {
  if (group < pool->groups.size()) return ANYATTN_OK;
  return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "kv pool: %s of group %u; this pool has %zu", call, group,
                           pool->groups.size());
}

// Writes what both sides know of an out struct whose size the caller set.
template <class Struct>
void write_struct(Struct* out, Struct own, uint32_t own_size) {
  const uint32_t size = std::min(out->struct_size, own_size);
  own.struct_size = out->struct_size;
  std::copy_n(reinterpret_cast<const char*>(&own), size, reinterpret_cast<char*>(out));
}

}  // namespace

extern "C" {

int32_t anyattn_kv_pool_create(anyattn_runtime* runtime, const anyattn_kv_pool_options* options, anyattn_kv_pool** pool,
                               anyattn_error* error) {
  if (!pool) return missing("create", "a place for the pool", error);
  *pool = nullptr;
  if (!runtime || !options) return missing("create", runtime ? "options" : "a runtime", error);
  anyattn_kv_pool_options own;
  anyattn_read_struct(&own, ANYATTN_KV_POOL_OPTIONS_SIZE, options);
  return guarded("create", error, [&] { return create(runtime, own, pool, error); });
}

void anyattn_kv_pool_destroy(anyattn_kv_pool* pool) { delete pool; }

int32_t anyattn_kv_pool_layer_cache(const anyattn_kv_pool* pool, uint32_t group, uint32_t layer, anyattn_cache* cache,
                                    anyattn_error* error) {
  if (!pool || !cache) return missing("layer_cache", pool ? "a place for the cache" : "a pool", error);
  if (const int32_t status = check_group(pool, "layer_cache", group, error)) return status;
  const PoolGroup& g = pool->groups[group];
  if (layer >= g.num_layers) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "kv pool: layer_cache of layer %u; %s has %u", layer,
                             pool->blocks->shape().groups[group].label.c_str(), g.num_layers);
  }
  anyattn_cache own{};
  own.base = static_cast<char*>(pool->memory.base) + layer * g.layout.layer_stride;
  own.block_stride_bytes = g.layout.kernel_stride;
  own.num_blocks = g.num_kernel_blocks;
  own.spec = &g.spec->spec;
  write_struct(cache, own, ANYATTN_CACHE_SIZE);
  return ANYATTN_OK;
}

uint32_t anyattn_kv_pool_max_blocks_per_req(const anyattn_kv_pool* pool, uint32_t group) {
  return pool && group < pool->groups.size() ? pool->blocks->table_width(group) : 0;
}

int32_t anyattn_kv_pool_begin(anyattn_kv_pool* pool, uint64_t request, const int32_t* token_ids, uint32_t num_tokens,
                              uint64_t salt, uint32_t* cached_tokens, anyattn_error* error) {
  if (!pool || !cached_tokens || (!token_ids && num_tokens > 0)) {
    return missing("begin", !pool ? "a pool" : cached_tokens ? "token ids" : "a place for cached_tokens", error);
  }
  return pool->blocks->begin(request, {token_ids, num_tokens}, salt, cached_tokens, error);
}

int32_t anyattn_kv_pool_append(anyattn_kv_pool* pool, uint64_t request, const int32_t* token_ids, uint32_t num_tokens,
                               anyattn_error* error) {
  if (!pool || (!token_ids && num_tokens > 0)) return missing("append", pool ? "token ids" : "a pool", error);
  return pool->blocks->append(request, {token_ids, num_tokens}, error);
}

int32_t anyattn_kv_pool_reserve(anyattn_kv_pool* pool, uint64_t request, uint32_t total_tokens, anyattn_error* error) {
  return pool ? pool->blocks->reserve(request, total_tokens, error) : missing("reserve", "a pool", error);
}

int32_t anyattn_kv_pool_commit(anyattn_kv_pool* pool, uint64_t request, uint32_t computed_tokens, anyattn_error* error) {
  return pool ? pool->blocks->commit(request, computed_tokens, error) : missing("commit", "a pool", error);
}

int32_t anyattn_kv_pool_release(anyattn_kv_pool* pool, uint64_t request, anyattn_error* error) {
  return pool ? pool->blocks->release(request, error) : missing("release", "a pool", error);
}

int32_t anyattn_kv_pool_block_table(const anyattn_kv_pool* pool, uint32_t group, const uint64_t* requests, uint32_t num_reqs,
                                    int32_t* out, int64_t stride, anyattn_error* error) {
  if (!pool || (num_reqs > 0 && (!requests || !out)))
    return missing("block_table", pool ? "requests or a place" : "a pool", error);
  return pool->blocks->block_table(group, {requests, num_reqs}, out, stride, error);
}

int32_t anyattn_kv_pool_slot_mapping(const anyattn_kv_pool* pool, uint32_t group, uint64_t request, uint32_t start,
                                     uint32_t count, int64_t* out, anyattn_error* error) {
  if (!pool || (count > 0 && !out)) return missing("slot_mapping", pool ? "a place" : "a pool", error);
  return pool->blocks->slot_mapping(group, request, start, count, out, error);
}

int32_t anyattn_kv_pool_get_stats(const anyattn_kv_pool* pool, anyattn_kv_pool_stats* stats, anyattn_error* error) {
  if (!pool || !stats) return missing("get_stats", pool ? "a place" : "a pool", error);
  const auto& pages = pool->blocks->pages();
  anyattn_kv_pool_stats own{};
  own.num_reqs = pool->blocks->num_requests();
  own.pool_bytes = pool->memory.bytes;
  own.page_bytes = pool->layout.page_bytes;
  own.total_pages = pages.num_pages();
  own.used_pages = pages.active_pages();
  own.cached_pages = pages.idle_pages();
  own.peak_used_pages = pages.peak_active_pages();
  for (uint32_t g = 0; g < pool->groups.size(); ++g) own.used_bytes += pages.held_blocks(g) * pool->groups[g].block_bytes;
  own.begun_tokens = pool->blocks->begun_tokens();
  own.reused_tokens = pool->blocks->reused_tokens();
  own.evicted_blocks = pages.evicted_blocks();
  write_struct(stats, own, ANYATTN_KV_POOL_STATS_SIZE);
  return ANYATTN_OK;
}

int32_t anyattn_kv_pool_get_group_stats(const anyattn_kv_pool* pool, uint32_t group, anyattn_kv_group_stats* stats,
                                        anyattn_error* error) {
  if (!pool || !stats) return missing("get_group_stats", pool ? "a place" : "a pool", error);
  if (const int32_t status = check_group(pool, "get_group_stats", group, error)) return status;
  const GroupShape& shape = pool->blocks->shape().groups[group];
  const auto& pages = pool->blocks->pages();
  anyattn_kv_group_stats own{};
  own.block_size = shape.block_size;
  own.kernel_block_size = shape.kernel_block_size;
  own.blocks_per_page = shape.blocks_per_page;
  own.block_bytes = pool->groups[group].block_bytes;
  own.max_blocks = uint64_t{pages.num_pages()} * shape.blocks_per_page;
  own.used_blocks = pages.held_blocks(group);
  own.cached_blocks = pages.cached_blocks(group);
  own.label = shape.label.c_str();
  write_struct(stats, own, ANYATTN_KV_GROUP_STATS_SIZE);
  return ANYATTN_OK;
}

}  // extern "C"
