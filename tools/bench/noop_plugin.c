/* SPDX-License-Identifier: Apache-2.0 */
/* NOOP_ATTN: takes every float32 problem and computes nothing, so that what a call costs is the runtime alone.
 * `anyattn bench` loads it by path; it lies in no folder that is searched. */
#include <stdlib.h>

#include "anyattn/plugin.h"
#include "anyattn/util.h"

struct anyattn_impl {
  uint32_t unused;
};
struct anyattn_metadata {
  uint32_t unused;
};

static int32_t supports(const anyattn_host* host, const anyattn_device_facts* facts, const anyattn_problem* problem,
                        const anyattn_reason_sink* reasons, anyattn_support_report* report, anyattn_error* error) {
  (void)host, (void)facts, (void)error;
  if (problem->q_dtype != ANYATTN_DTYPE_FLOAT32) {
    const anyattn_reason reason = {ANYATTN_REASON_SIZE, ANYATTN_REASON_DTYPE, "q_dtype", "another", "float32", NULL};
    reasons->add(reasons->context, &reason);
    return ANYATTN_OK;
  }
  report->supported = 1;
  report->block_size = problem->block_size ? problem->block_size : 16;
  report->block_size_multiple = 1;
  report->query_lengths = ANYATTN_QUERY_ANY;
  report->decode_threshold = 1;
  return ANYATTN_OK;
}

static anyattn_plane plane_of(uint32_t role, const anyattn_problem* problem, int64_t head_size, uint64_t offset) {
  anyattn_plane plane = {ANYATTN_PLANE_SIZE, role, ANYATTN_DTYPE_FLOAT32, 4, {0}, {0}, offset};
  plane.dims[1] = problem->block_size;
  plane.dims[2] = problem->num_kv_heads;
  plane.dims[3] = head_size;
  plane.strides[3] = 4;
  plane.strides[2] = plane.strides[3] * plane.dims[3];
  plane.strides[1] = plane.strides[2] * plane.dims[2];
  return plane;
}

static int32_t kv_cache_spec(const anyattn_host* host, const anyattn_device_facts* facts, const anyattn_problem* problem,
                             anyattn_spec_fn accept, void* context, anyattn_error* error) {
  const uint64_t rows = 4ull * problem->block_size * problem->num_kv_heads;
  const uint64_t k_bytes = rows * problem->head_size, v_bytes = rows * problem->head_size_v;
  anyattn_plane planes[2] = {plane_of(ANYATTN_PLANE_K, problem, problem->head_size, 0),
                             plane_of(ANYATTN_PLANE_V, problem, problem->head_size_v, k_bytes)};
  anyattn_kv_cache_spec spec = {
      ANYATTN_KV_CACHE_SPEC_SIZE, problem->block_size, 0, 64, 2, sizeof planes[0], 0, planes, "NHD", 0};
  (void)host, (void)facts, (void)error;
  spec.block_bytes = (k_bytes + v_bytes + 63) / 64 * 64;
  planes[0].strides[0] = planes[1].strides[0] = (int64_t)spec.block_bytes;
  spec.digest = anyattn_kv_cache_spec_digest(&spec);
  accept(context, &spec);
  return ANYATTN_OK;
}

static int32_t impl_create(const anyattn_host* host, const anyattn_device_facts* device, const anyattn_problem* problem,
                           const anyattn_kv_cache_spec* spec, anyattn_impl** impl, anyattn_error* error) {
  (void)host, (void)device, (void)problem, (void)spec;
  *impl = calloc(1, sizeof **impl);
  return *impl ? ANYATTN_OK : anyattn_error_set(error, ANYATTN_OUT_OF_MEMORY, "NOOP_ATTN: no memory for an impl");
}

static void impl_destroy(anyattn_impl* impl) { free(impl); }

static int32_t memory(const anyattn_impl* impl, const anyattn_limits* limits, anyattn_memory* sizes, anyattn_error* error) {
  (void)impl, (void)limits, (void)sizes, (void)error;
  return ANYATTN_OK;
}

static int32_t warmup(anyattn_impl* impl, const anyattn_limits* limits, void* stream, void* scratch, uint32_t* graph_level,
                      anyattn_error* error) {
  (void)impl, (void)limits, (void)stream, (void)scratch, (void)error;
  *graph_level = ANYATTN_GRAPH_NEVER;
  return ANYATTN_OK;
}

static int32_t metadata_create(anyattn_impl* impl, const anyattn_limits* limits, uint32_t mode, void* persistent, void* pinned,
                               anyattn_metadata** metadata, anyattn_error* error) {
  (void)impl, (void)limits, (void)mode, (void)persistent, (void)pinned;
  *metadata = calloc(1, sizeof **metadata);
  return *metadata ? ANYATTN_OK : anyattn_error_set(error, ANYATTN_OUT_OF_MEMORY, "NOOP_ATTN: no memory for metadata");
}

static int32_t metadata_update(anyattn_metadata* metadata, const anyattn_batch* batch, void* stream, anyattn_error* error) {
  (void)metadata, (void)batch, (void)stream, (void)error;
  return ANYATTN_OK;
}

static void metadata_destroy(anyattn_metadata* metadata) { free(metadata); }

static int32_t kv_cache_update(anyattn_impl* impl, const anyattn_kv_cache_update_args* args, anyattn_error* error) {
  (void)impl, (void)args, (void)error;
  return ANYATTN_OK;
}

static int32_t forward(anyattn_impl* impl, const anyattn_metadata* metadata, const anyattn_forward_args* args,
                       anyattn_error* error) {
  (void)impl, (void)metadata, (void)args, (void)error;
  return ANYATTN_OK;
}

static const anyattn_backend kBackend = {.struct_size = ANYATTN_BACKEND_SIZE,
                                         .device_kind = ANYATTN_DEVICE_CPU,
                                         .name = "NOOP_ATTN",
                                         .description = "computes nothing",
                                         .supports = supports,
                                         .kv_cache_spec = kv_cache_spec,
                                         .impl_create = impl_create,
                                         .impl_destroy = impl_destroy,
                                         .memory = memory,
                                         .warmup = warmup,
                                         .metadata_create = metadata_create,
                                         .metadata_update = metadata_update,
                                         .metadata_destroy = metadata_destroy,
                                         .kv_cache_update = kv_cache_update,
                                         .forward = forward};
static const anyattn_backend* const kBackends[] = {&kBackend};
static const anyattn_plugin kPlugin = {.struct_size = ANYATTN_PLUGIN_SIZE,
                                       .abi_version = ANYATTN_ABI_VERSION_CURRENT,
                                       .abi_min = ANYATTN_ABI_VERSION_CURRENT,
                                       .abi_max = ANYATTN_ABI_VERSION_CURRENT,
                                       .id = "org.anyattn.noop",
                                       .vendor = "AnyAttn",
                                       .version = "1.0",
                                       .license = "Apache-2.0",
                                       .num_backends = 1,
                                       .backends = kBackends};

int32_t anyattn_plugin_entry_v0(uint32_t host_abi_min, uint32_t host_abi_max, const anyattn_host* host,
                                const anyattn_plugin** plugin, anyattn_error* error) {
  (void)host;
  *plugin = &kPlugin;
  if (kPlugin.abi_version >= host_abi_min && kPlugin.abi_version <= host_abi_max) return ANYATTN_OK;
  return anyattn_error_set(error, ANYATTN_ABI_MISMATCH, "org.anyattn.noop was built with the tool and speaks its version only");
}
