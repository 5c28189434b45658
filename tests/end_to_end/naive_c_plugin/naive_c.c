/* SPDX-License-Identifier: Apache-2.0 */
/* NAIVE_C_ATTN: causal attention over a paged float32 cache in plain loops. */
#include <math.h>
#include <stdlib.h>

#include "anyattn/plugin.h"
#include "anyattn/util.h"

struct anyattn_impl {
  anyattn_problem problem;
  int64_t v_offset; /* of plane V in a block, bytes; both planes are [block_size][num_kv_heads][head size] */
};

struct anyattn_metadata {
  anyattn_batch batch; /* borrowed arrays; they stay until the last call that uses this */
};

static uint32_t refuse(const anyattn_reason_sink* sink, uint32_t id, const char* field, const char* wanted,
                       const char* allowed) {
  const anyattn_reason reason = {ANYATTN_REASON_SIZE, id, field, wanted, allowed, NULL};
  sink->add(sink->context, &reason);
  return 1;
}

static int32_t supports(const anyattn_host* host, const anyattn_device_facts* facts, const anyattn_problem* problem,
                        const anyattn_reason_sink* reasons, anyattn_support_report* report, anyattn_error* error) {
  anyattn_problem p;
  uint32_t refused = 0;
  char name[32];
  anyattn_read_struct(&p, ANYATTN_PROBLEM_SIZE, problem);
  for (uint32_t bit = 0; bit < p.num_feature_words * 64; ++bit) {
    const uint32_t id = bit < ANYATTN_FEATURE_COUNT ? ANYATTN_REASON_FEATURE : ANYATTN_REASON_FEATURE_UNKNOWN;
    snprintf(name, sizeof name, "feature_%u", bit);
    if (anyattn_problem_has(&p, bit)) refused |= refuse(reasons, id, name, "true", "false");
  }
  if (p.key_source != ANYATTN_KEYS_PAGED)
    refused |= refuse(reasons, ANYATTN_REASON_KEY_SOURCE, "key_source", "ragged", "paged");
  if (p.q_dtype != ANYATTN_DTYPE_FLOAT32 || p.out_dtype != ANYATTN_DTYPE_FLOAT32)
    refused |= refuse(reasons, ANYATTN_REASON_DTYPE, "q_dtype", "another", "float32");
  if (p.kv_cache_dtype && strcmp(p.kv_cache_dtype, "float32") != 0)
    refused |= refuse(reasons, ANYATTN_REASON_KV_CACHE_DTYPE, "kv_cache_dtype", p.kv_cache_dtype, "float32");
  report->supported = !refused;
  report->block_size = p.block_size ? p.block_size : 16;
  report->block_size_multiple = 1;
  report->query_lengths = ANYATTN_QUERY_ANY;
  return ANYATTN_OK;
}

static anyattn_plane plane_of(uint32_t role, const anyattn_problem* p, uint32_t head_size, uint64_t offset,
                              int64_t block_bytes) {
  anyattn_plane plane = {ANYATTN_PLANE_SIZE, role, ANYATTN_DTYPE_FLOAT32, 4, {0}, {0}, offset};
  plane.dims[1] = p->block_size, plane.dims[2] = p->num_kv_heads, plane.dims[3] = head_size;
  plane.strides[3] = 4, plane.strides[2] = 4 * (int64_t)head_size, plane.strides[1] = plane.strides[2] * p->num_kv_heads;
  plane.strides[0] = block_bytes;
  return plane;
}

static int32_t kv_cache_spec(const anyattn_host* host, const anyattn_device_facts* facts, const anyattn_problem* problem,
                             anyattn_spec_fn accept, void* context, anyattn_error* error) {
  anyattn_problem p;
  anyattn_plane planes[2];
  anyattn_kv_cache_spec spec = {ANYATTN_KV_CACHE_SPEC_SIZE, 0, 0, 64, 2, sizeof planes[0], 0, planes, "NHD", 0};
  anyattn_read_struct(&p, ANYATTN_PROBLEM_SIZE, problem);
  const uint64_t token_bytes = 4ull * p.num_kv_heads, k_bytes = p.block_size * token_bytes * p.head_size;
  spec.block_size = p.block_size;
  spec.block_bytes = (k_bytes + p.block_size * token_bytes * p.head_size_v + 63) / 64 * 64;
  planes[0] = plane_of(ANYATTN_PLANE_K, &p, p.head_size, 0, (int64_t)spec.block_bytes);
  planes[1] = plane_of(ANYATTN_PLANE_V, &p, p.head_size_v, k_bytes, (int64_t)spec.block_bytes);
  spec.digest = anyattn_kv_cache_spec_digest(&spec);
  accept(context, &spec);
  return ANYATTN_OK;
}

static int32_t impl_create(const anyattn_host* host, const anyattn_device_facts* device, const anyattn_problem* problem,
                           const anyattn_kv_cache_spec* spec, anyattn_impl** impl, anyattn_error* error) {
  *impl = calloc(1, sizeof **impl);
  if (!*impl) return anyattn_error_set(error, ANYATTN_OUT_OF_MEMORY, "NAIVE_C_ATTN: no memory for an impl");
  anyattn_read_struct(&(*impl)->problem, ANYATTN_PROBLEM_SIZE, problem);
  (*impl)->v_offset = 4ll * (*impl)->problem.block_size * (*impl)->problem.num_kv_heads * (*impl)->problem.head_size;
  return ANYATTN_OK;
}

static void impl_destroy(anyattn_impl* impl) { free(impl); }
static int32_t memory(const anyattn_impl* impl, const anyattn_limits* limits, anyattn_memory* memory, anyattn_error* error) {
  return ANYATTN_OK;
}

static int32_t warmup(anyattn_impl* impl, const anyattn_limits* limits, void* stream, void* scratch, uint32_t* graph_level,
                      anyattn_error* error) {
  *graph_level = ANYATTN_GRAPH_NEVER;
  return ANYATTN_OK;
}

static int32_t metadata_create(anyattn_impl* impl, const anyattn_limits* limits, uint32_t mode, void* persistent, void* pinned,
                               anyattn_metadata** metadata, anyattn_error* error) {
  *metadata = calloc(1, sizeof **metadata);
  if (!*metadata) return anyattn_error_set(error, ANYATTN_OUT_OF_MEMORY, "NAIVE_C_ATTN: no memory for metadata");
  return ANYATTN_OK;
}

static int32_t metadata_update(anyattn_metadata* metadata, const anyattn_batch* batch, void* stream, anyattn_error* error) {
  anyattn_read_struct(&metadata->batch, ANYATTN_BATCH_SIZE, batch);
  return ANYATTN_OK;
}

static void metadata_destroy(anyattn_metadata* metadata) { free(metadata); }
/* Row [token, head] of a [tokens, heads, size] tensor. */
static float* row(const anyattn_tensor* t, int64_t token, int64_t head) {
  return (float*)((char*)t->data + t->byte_offset) + token * t->strides[0] + head * t->strides[1];
}

/* Row of kv head `head` of the token in `slot`; offset: of the plane in its block. */
static float* cached(const anyattn_problem* p, const anyattn_cache* cache, int64_t slot, int64_t head, int64_t offset,
                     uint32_t size) {
  char* block = (char*)cache->base + (uint64_t)(slot / p->block_size) * cache->block_stride_bytes + offset;
  return (float*)block + ((slot % p->block_size) * p->num_kv_heads + head) * size;
}

static int32_t kv_cache_update(anyattn_impl* impl, const anyattn_kv_cache_update_args* args, anyattn_error* error) {
  const anyattn_problem* p = &impl->problem;
  const int64_t* slots = (const int64_t*)((const char*)args->slot_mapping.data + args->slot_mapping.byte_offset);
  if (!args->slot_mapping.data)
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "NAIVE_C_ATTN: slot_mapping is absent");
  for (int64_t t = 0; t < args->slot_mapping.shape[0]; ++t)
    for (int64_t h = 0; slots[t] >= 0 && h < p->num_kv_heads; ++h) {
      memcpy(cached(p, args->cache, slots[t], h, 0, p->head_size), row(&args->k, t, h), 4 * p->head_size);
      memcpy(cached(p, args->cache, slots[t], h, impl->v_offset, p->head_size_v), row(&args->v, t, h), 4 * p->head_size_v);
    }
  return ANYATTN_OK;
}

/* One row: online softmax over the first num_keys keys of the request. */
static void attend(const anyattn_impl* impl, const anyattn_batch* batch, const anyattn_forward_args* a, uint32_t request,
                   int64_t t, int64_t h, int64_t num_keys) {
  const anyattn_problem* p = &impl->problem;
  const int32_t* table = batch->block_table + request * batch->block_table_stride;
  float *q = row(&a->q, t, h), *out = row(&a->out, t, h), largest = -INFINITY, sum = 0;
  const int64_t kv_head = h / (p->num_q_heads / p->num_kv_heads);
  memset(out, 0, 4 * p->head_size_v);
  for (int64_t j = 0; j < num_keys; ++j) {
    const int64_t slot = (int64_t)table[j / p->block_size] * p->block_size + j % p->block_size;
    const float* k = cached(p, a->cache, slot, kv_head, 0, p->head_size);
    const float* v = cached(p, a->cache, slot, kv_head, impl->v_offset, p->head_size_v);
    float score = 0;
    for (uint32_t d = 0; d < p->head_size; ++d) score += q[d] * k[d];
    score *= (float)a->softmax_scale;
    const float top = score > largest ? score : largest, before = expf(largest - top), weight = expf(score - top);
    largest = top;
    sum = sum * before + weight;
    for (uint32_t d = 0; d < p->head_size_v; ++d) out[d] = out[d] * before + weight * v[d];
  }
  for (uint32_t d = 0; d < p->head_size_v && num_keys > 0; ++d) out[d] /= sum;
}

static int32_t forward(anyattn_impl* impl, const anyattn_metadata* m, const anyattn_forward_args* args, anyattn_error* error) {
  int32_t t = 0;
  for (uint32_t r = 0; r < m->batch.num_reqs; ++r) {
    const int32_t end = m->batch.query_start_loc[r + 1], length = m->batch.seq_lens[r];
    for (; t < end; ++t)
      for (uint32_t h = 0; h < impl->problem.num_q_heads; ++h)
        attend(impl, &m->batch, args, r, t, h, length ? length - (end - t) + 1 : 0);
  }
  for (; t < (int32_t)m->batch.num_tokens; ++t)
    for (uint32_t h = 0; h < impl->problem.num_q_heads; ++h) memset(row(&args->out, t, h), 0, 4 * impl->problem.head_size_v);
  return ANYATTN_OK;
}

static const anyattn_backend kBackend = {.struct_size = ANYATTN_BACKEND_SIZE,
                                         .device_kind = ANYATTN_DEVICE_CPU,
                                         .name = "NAIVE_C_ATTN",
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
                                       .id = "org.example.naive",
                                       .vendor = "Example",
                                       .version = "1.0",
                                       .license = "Apache-2.0",
                                       .num_backends = 1,
                                       .backends = kBackends};

int32_t anyattn_plugin_entry_v0(uint32_t host_abi_min, uint32_t host_abi_max, const anyattn_host* host,
                                const anyattn_plugin** plugin, anyattn_error* error) {
  *plugin = &kPlugin;
  if (kPlugin.abi_version >= host_abi_min && kPlugin.abi_version <= host_abi_max) return ANYATTN_OK;
  return anyattn_error_set(error, ANYATTN_ABI_MISMATCH, "org.example.naive speaks ABI 0.1 only");
}
