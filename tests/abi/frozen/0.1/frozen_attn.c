/* SPDX-License-Identifier: Apache-2.0 */
/* FROZEN_ATTN: a plugin as it was built against the headers of 0.1 in this folder; loaded by every host that accepts 0.1.
 * Plain loops: float32, causal, paged; everything else is refused with a reason. */
#include <math.h>
#include <stdlib.h>

#include "anyattn/plugin.h"
#include "anyattn/util.h"

struct anyattn_impl {
  anyattn_problem sizes; /* its pointers are not kept */
  anyattn_plane k, v;    /* byte strides: block, token, head, element */
};
struct anyattn_metadata {
  anyattn_batch batch;
};

static void refuse(const anyattn_reason_sink* sink, int* count, uint32_t id, const char* field, const char* wanted,
                   const char* allowed) {
  const anyattn_reason reason = {ANYATTN_REASON_SIZE, id, field, wanted, allowed, NULL};
  if (sink) sink->add(sink->context, &reason);
  ++*count;
}

/* The one decision behind supports and impl_create: how many reasons speak against the problem; sink may be null. */
static int decide(const anyattn_problem* problem, const anyattn_reason_sink* sink) {
  int count = 0;
  char wanted[32];
  /* Every bit that is not known here must be refused, also those of later versions: a parameter behind it would be ignored. */
  for (uint32_t bit = 0; bit < 64 * problem->num_feature_words; ++bit) {
    if (!anyattn_problem_has(problem, bit) || bit == ANYATTN_FEATURE_BATCH_INVARIANT) continue;
    snprintf(wanted, sizeof wanted, "bit %u", (unsigned)bit);
    refuse(sink, &count, bit < ANYATTN_FEATURE_COUNT ? ANYATTN_REASON_FEATURE : ANYATTN_REASON_FEATURE_UNKNOWN, "features",
           wanted, "batch_invariant");
  }
  if (problem->key_source != ANYATTN_KEYS_PAGED)
    refuse(sink, &count, ANYATTN_REASON_KEY_SOURCE, "key_source", "ragged", "paged");
  if (problem->q_dtype != ANYATTN_DTYPE_FLOAT32 || problem->out_dtype != ANYATTN_DTYPE_FLOAT32)
    refuse(sink, &count, ANYATTN_REASON_DTYPE, "q_dtype, out_dtype", "another", "float32");
  if (problem->kv_cache_dtype && strcmp(problem->kv_cache_dtype, "float32") != 0)
    refuse(sink, &count, ANYATTN_REASON_KV_CACHE_DTYPE, "kv_cache_dtype", problem->kv_cache_dtype, "float32");
  return count;
}
static int32_t supports(const anyattn_host* host, const anyattn_device_facts* facts, const anyattn_problem* asked,
                        const anyattn_reason_sink* reasons, anyattn_support_report* out, anyattn_error* error) {
  anyattn_support_report report = {ANYATTN_SUPPORT_REPORT_SIZE, 1, 0, 1, 0, {0}, ANYATTN_QUERY_ANY, 0, 0, 0, 0, 0};
  anyattn_problem problem;
  (void)host, (void)facts, (void)error;
  anyattn_read_struct(&problem, ANYATTN_PROBLEM_SIZE, asked);
  report.supported = decide(&problem, reasons) == 0;
  report.block_size = problem.block_size ? problem.block_size : 16;
  if (out->struct_size < report.struct_size) report.struct_size = out->struct_size;
  memcpy(out, &report, report.struct_size); /* what fits of the caller's */
  return ANYATTN_OK;
}
static anyattn_plane plane_of(uint32_t role, const anyattn_problem* problem, int64_t head_size, uint64_t byte_offset) {
  anyattn_plane plane = {ANYATTN_PLANE_SIZE, role, ANYATTN_DTYPE_FLOAT32, 4, {0}, {0}, byte_offset};
  plane.dims[1] = problem->block_size, plane.dims[2] = problem->num_kv_heads, plane.dims[3] = head_size;
  plane.strides[3] = sizeof(float);
  plane.strides[2] = plane.strides[3] * plane.dims[3];
  plane.strides[1] = plane.strides[2] * plane.dims[2];
  return plane;
}
static int32_t kv_cache_spec(const anyattn_host* host, const anyattn_device_facts* facts, const anyattn_problem* problem,
                             anyattn_spec_fn accept, void* context, anyattn_error* error) {
  const uint64_t rows = (uint64_t)problem->block_size * problem->num_kv_heads * sizeof(float);
  const uint64_t bytes = (rows * (problem->head_size + problem->head_size_v) + 63) / 64 * 64;
  anyattn_plane planes[2] = {plane_of(ANYATTN_PLANE_K, problem, problem->head_size, 0),
                             plane_of(ANYATTN_PLANE_V, problem, problem->head_size_v, rows * problem->head_size)};
  anyattn_kv_cache_spec spec = {
      ANYATTN_KV_CACHE_SPEC_SIZE, problem->block_size, bytes, 64, 2, sizeof planes[0], 0, planes, "NHD", 0};
  (void)host, (void)facts, (void)error;
  planes[0].strides[0] = planes[1].strides[0] = (int64_t)bytes;
  spec.digest = anyattn_kv_cache_spec_digest(&spec);
  accept(context, &spec);
  return ANYATTN_OK;
}

static int32_t impl_create(const anyattn_host* host, const anyattn_device_facts* device, const anyattn_problem* problem,
                           const anyattn_kv_cache_spec* spec, anyattn_impl** impl, anyattn_error* error) {
  anyattn_problem read;
  (void)host, (void)device;
  anyattn_read_struct(&read, ANYATTN_PROBLEM_SIZE, problem);
  if (decide(&read, NULL) > 0 || !spec)
    return anyattn_error_set(error, ANYATTN_UNSUPPORTED, "FROZEN_ATTN: this problem is refused; ask supports why");
  *impl = calloc(1, sizeof **impl);
  if (!*impl) return anyattn_error_set(error, ANYATTN_MEMORY_NOT_NOW, "FROZEN_ATTN: no memory for an impl");
  (*impl)->sizes = read;
  anyattn_read_struct(&(*impl)->k, ANYATTN_PLANE_SIZE, spec->planes);
  anyattn_read_struct(&(*impl)->v, ANYATTN_PLANE_SIZE, (const char*)spec->planes + spec->plane_stride);
  return ANYATTN_OK;
}
static void impl_destroy(anyattn_impl* impl) { free(impl); }
/* Enough for every batch within the limits: the weights of one row. */
static int32_t memory(const anyattn_impl* impl, const anyattn_limits* limits, anyattn_memory* sizes, anyattn_error* error) {
  (void)impl, (void)error;
  sizes->scratch_bytes = (uint64_t)limits->max_seq_len * sizeof(double);
  return ANYATTN_OK;
}
static int32_t warmup(anyattn_impl* impl, const anyattn_limits* limits, void* stream, void* scratch, uint32_t* level,
                      anyattn_error* error) {
  (void)impl, (void)limits, (void)stream, (void)scratch, (void)error;
  *level = ANYATTN_GRAPH_NEVER;
  return ANYATTN_OK;
}
static int32_t metadata_create(anyattn_impl* impl, const anyattn_limits* limits, uint32_t mode, void* persistent, void* pinned,
                               anyattn_metadata** metadata, anyattn_error* error) {
  (void)impl, (void)limits, (void)mode, (void)persistent, (void)pinned;
  *metadata = calloc(1, sizeof **metadata);
  return *metadata ? ANYATTN_OK : anyattn_error_set(error, ANYATTN_MEMORY_NOT_NOW, "FROZEN_ATTN: no memory for metadata");
}
static int32_t metadata_update(anyattn_metadata* metadata, const anyattn_batch* batch, void* stream, anyattn_error* error) {
  (void)stream, (void)error;
  anyattn_read_struct(&metadata->batch, ANYATTN_BATCH_SIZE, batch);
  return ANYATTN_OK;
}
static void metadata_destroy(anyattn_metadata* metadata) { free(metadata); }

/* Row [i, j] of a tensor [n, heads, size]; elements of a row are tensor->strides[2] apart. */
static float* row(const anyattn_tensor* tensor, int64_t i, int64_t j) {
  return (float*)((char*)tensor->data + tensor->byte_offset) + i * tensor->strides[0] + j * tensor->strides[1];
}
/* The same in a plane of the cache, whose elements are adjacent. */
static float* cached(const anyattn_cache* cache, const anyattn_plane* plane, int64_t block, int64_t offset, int64_t head) {
  return (float*)((char*)cache->base + (uint64_t)block * cache->block_stride_bytes + plane->byte_offset +
                  offset * plane->strides[1] + head * plane->strides[2]);
}

static int32_t kv_cache_update(anyattn_impl* impl, const anyattn_kv_cache_update_args* args, anyattn_error* error) {
  const anyattn_tensor* slots = &args->slot_mapping;
  if (!slots->data) return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "FROZEN_ATTN: slot_mapping is absent");
  for (int64_t t = 0; t < slots->shape[0]; ++t) {
    const int64_t slot = ((const int64_t*)((const char*)slots->data + slots->byte_offset))[t * slots->strides[0]];
    if (slot < 0) continue;
    for (int64_t h = 0; h < impl->sizes.num_kv_heads; ++h) {
      float* k = cached(args->cache, &impl->k, slot / impl->sizes.block_size, slot % impl->sizes.block_size, h);
      float* v = cached(args->cache, &impl->v, slot / impl->sizes.block_size, slot % impl->sizes.block_size, h);
      for (int64_t d = 0; d < impl->sizes.head_size; ++d) k[d] = row(&args->k, t, h)[d * args->k.strides[2]];
      for (int64_t d = 0; d < impl->sizes.head_size_v; ++d) v[d] = row(&args->v, t, h)[d * args->v.strides[2]];
    }
  }
  return ANYATTN_OK;
}

/* One row of one head over its first num_keys keys; weights: room for them. */
static void attend(const anyattn_impl* impl, const anyattn_forward_args* args, const int32_t* blocks, int64_t token,
                   int64_t head, int64_t num_keys, double* weights) {
  const int64_t kv = head / (impl->sizes.num_q_heads / impl->sizes.num_kv_heads), bs = impl->sizes.block_size;
  const float* q = row(&args->q, token, head);
  float* out = row(&args->out, token, head);
  double max = -INFINITY, sum = 0;
  for (int64_t j = 0; j < num_keys; ++j) {
    const float* k = cached(args->cache, &impl->k, blocks[j / bs], j % bs, kv);
    double dot = 0;
    for (int64_t d = 0; d < impl->sizes.head_size; ++d) dot += (double)q[d * args->q.strides[2]] * k[d];
    weights[j] = args->softmax_scale * dot;
    if (weights[j] > max) max = weights[j];
  }
  for (int64_t j = 0; j < num_keys; ++j) sum += weights[j] = exp(weights[j] - max);
  for (int64_t d = 0; d < impl->sizes.head_size_v; ++d) {
    double value = 0;
    for (int64_t j = 0; j < num_keys; ++j) value += weights[j] * cached(args->cache, &impl->v, blocks[j / bs], j % bs, kv)[d];
    out[d * args->out.strides[2]] = num_keys > 0 ? (float)(value / sum) : 0.0f;
  }
}
static int32_t forward(anyattn_impl* impl, const anyattn_metadata* metadata, const anyattn_forward_args* args,
                       anyattn_error* error) {
  const anyattn_batch* batch = &metadata->batch;
  uint32_t r = 0;
  (void)error;
  for (int64_t t = 0; t < batch->num_tokens; ++t) {
    while (r < batch->num_reqs && t >= batch->query_start_loc[r + 1]) ++r;
    /* Rows past the last request see no key and are 0; row i of a request stands at seq_len - query_len + i. */
    const int64_t num_keys = r < batch->num_reqs ? batch->seq_lens[r] - (batch->query_start_loc[r + 1] - t) + 1 : 0;
    const int32_t* blocks = batch->block_table + (int64_t)(r < batch->num_reqs ? r : 0) * batch->block_table_stride;
    for (int64_t h = 0; h < impl->sizes.num_q_heads; ++h) attend(impl, args, blocks, t, h, num_keys, args->scratch);
  }
  return ANYATTN_OK;
}
/* clang-format off */
static const anyattn_backend kBackend = {
    .struct_size = ANYATTN_BACKEND_SIZE, .device_kind = ANYATTN_DEVICE_CPU, .name = "FROZEN_ATTN", .description = "plain loops",
    .supports = supports, .kv_cache_spec = kv_cache_spec, .impl_create = impl_create, .impl_destroy = impl_destroy,
    .memory = memory, .warmup = warmup, .metadata_create = metadata_create, .metadata_update = metadata_update,
    .metadata_destroy = metadata_destroy, .kv_cache_update = kv_cache_update, .forward = forward};
static const anyattn_backend* const kBackends[] = {&kBackend};
static const anyattn_plugin kPlugin = {
    .struct_size = ANYATTN_PLUGIN_SIZE, .abi_version = ANYATTN_ABI_VERSION_CURRENT, .abi_min = ANYATTN_ABI_VERSION_CURRENT,
    .abi_max = ANYATTN_ABI_VERSION_CURRENT, .id = "org.anyattn.test.frozen", .vendor = "Example", .version = "1.0",
    .license = "Apache-2.0", .num_backends = 1, .backends = kBackends};
/* clang-format on */
int32_t anyattn_plugin_entry_v0(uint32_t host_abi_min, uint32_t host_abi_max, const anyattn_host* host,
                                const anyattn_plugin** plugin, anyattn_error* error) {
  (void)host;
  *plugin = &kPlugin;
  if (host_abi_min <= kPlugin.abi_max && host_abi_max >= kPlugin.abi_min) return ANYATTN_OK;
  return anyattn_error_set(error, ANYATTN_ABI_MISMATCH, "org.anyattn.test.frozen speaks ABI 0.%u; the host 0.%u to 0.%u",
                           ANYATTN_ABI_MINOR, host_abi_min & 0xffff, host_abi_max & 0xffff);
}
