/* SPDX-License-Identifier: Apache-2.0 */
/* consumer CONFIG BACKEND: two tokens of a model from the installed table, stored and attended through the wanted backend.
 * Token 0 sees one key, so its output is exactly that value row; token 1 sees two equal keys, so it gets their mean. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "anyattn/models.h"
#include "anyattn/runtime.h"

enum { kTokens = 2 };

static char text[8000];
static anyattn_error error = {text, sizeof text, 0, 0, 0};
static anyattn_runtime* runtime;

static void want(int32_t status, const char* what) {
  if (status == ANYATTN_OK) return;
  fprintf(stderr, "%s: status %d: %s\n", what, (int)status, text);
  exit(1);
}

/* A row-major tensor; the arrays are the caller's. */
static anyattn_tensor tensor(void* data, uint32_t dtype, int32_t ndim, int64_t* shape, int64_t* strides) {
  anyattn_tensor out = {data, ANYATTN_DEVICE_CPU, 0, ndim, (uint8_t)dtype, (uint8_t)(dtype >> 8), 1, shape, strides, 0};
  int64_t stride = 1;
  for (int32_t i = ndim; i-- > 0; stride *= shape[i]) strides[i] = stride;
  return out;
}

static float* device_floats(uint64_t count) {
  void* memory = NULL;
  want(anyattn_device_alloc(runtime, ANYATTN_DEVICE_CPU, 0, count * sizeof(float), &memory, &error), "anyattn_device_alloc");
  return memory;
}

int main(int argc, char** argv) {
  anyattn_runtime_options options = {ANYATTN_RUNTIME_OPTIONS_SIZE, 1, argc > 1 ? argv[1] : NULL, NULL, "error"};
  anyattn_model* model = NULL;
  anyattn_layer_kind layers = {.struct_size = ANYATTN_LAYER_KIND_SIZE};
  anyattn_limits limits = {ANYATTN_LIMITS_SIZE, 1, kTokens, kTokens, kTokens, 0};
  anyattn_group* group = NULL;
  anyattn_group_info info = {.struct_size = ANYATTN_GROUP_INFO_SIZE};

  if (argc != 3) return fprintf(stderr, "usage: consumer CONFIG BACKEND\n"), 2;
  want(anyattn_runtime_create(&options, &runtime, &error), "anyattn_runtime_create");
  want(anyattn_model_load(NULL, "Llama-3.2-1B", ANYATTN_DTYPE_FLOAT32, &model, &error), "anyattn_model_load");
  want(anyattn_model_get_layer_kind(model, 0, &layers, &error), "anyattn_model_get_layer_kind");
  anyattn_group_options wanted = {ANYATTN_GROUP_OPTIONS_SIZE, 0, layers.problem, &limits, "cpu", NULL, layers.label, NULL};
  want(anyattn_group_create(runtime, &wanted, &group, &error), "anyattn_group_create");
  want(anyattn_group_get_info(group, &info, &error), "anyattn_group_get_info");
  if (strcmp(info.backend, argv[2]) != 0) return fprintf(stderr, "backend is %s, wanted %s\n", info.backend, argv[2]), 1;

  const int64_t heads = layers.problem->num_q_heads, kv_heads = layers.problem->num_kv_heads, size = layers.problem->head_size;
  float* q = device_floats((uint64_t)(kTokens * heads * size));
  float* k = device_floats((uint64_t)(kTokens * kv_heads * size));
  float* v = device_floats((uint64_t)(kTokens * kv_heads * size));
  float* out = device_floats((uint64_t)(kTokens * heads * size));
  void* blocks = NULL;
  want(anyattn_device_alloc(runtime, ANYATTN_DEVICE_CPU, 0, info.spec->block_bytes, &blocks, &error), "anyattn_device_alloc");
  for (int64_t i = 0; i < kTokens * heads * size; ++i) q[i] = (float)(i % 7) - 3;
  for (int64_t i = 0; i < kTokens * kv_heads * size; ++i) k[i] = (float)(i % size) / (float)size, v[i] = (float)(i % 11);

  int32_t query_start_loc[2] = {0, kTokens}, seq_lens[1] = {kTokens}, table[1] = {0};
  int64_t slots[kTokens] = {0, 1},
          shapes[4][3] = {{kTokens, heads, size}, {kTokens, kv_heads, size}, {kTokens}, {kTokens, heads, size}};
  int64_t strides[5][3];
  anyattn_batch batch = {.struct_size = ANYATTN_BATCH_SIZE,
                         .num_reqs = 1,
                         .num_tokens = kTokens,
                         .max_query_len = kTokens,
                         .max_seq_len = kTokens,
                         .query_start_loc = query_start_loc,
                         .seq_lens = seq_lens,
                         .block_table = table,
                         .block_table_stride = 1};
  anyattn_cache cache = {ANYATTN_CACHE_SIZE, 0, blocks, info.spec->block_bytes, 1, info.spec};
  anyattn_kv_cache_update_args store = {.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE, .cache = &cache};
  store.k = tensor(k, ANYATTN_DTYPE_FLOAT32, 3, shapes[1], strides[0]);
  store.v = tensor(v, ANYATTN_DTYPE_FLOAT32, 3, shapes[1], strides[1]);
  store.slot_mapping = tensor(slots, ANYATTN_DTYPE_INT64, 1, shapes[2], strides[2]);
  anyattn_forward_args args = {
      .struct_size = ANYATTN_FORWARD_ARGS_SIZE, .softmax_scale = layers.softmax_scale, .cache = &cache};
  args.q = tensor(q, ANYATTN_DTYPE_FLOAT32, 3, shapes[0], strides[3]);
  args.out = tensor(out, ANYATTN_DTYPE_FLOAT32, 3, shapes[3], strides[4]);
  want(anyattn_group_update(group, ANYATTN_PHASE_BOTH, &batch, NULL, &error), "anyattn_group_update");
  want(anyattn_group_kv_cache_update(group, &store, &error), "anyattn_group_kv_cache_update");
  want(anyattn_group_forward(group, ANYATTN_PHASE_BOTH, &args, &error), "anyattn_group_forward");

  for (int64_t h = 0; h < heads; ++h)
    for (int64_t d = 0; d < size; ++d) {
      const int64_t kv = h / (heads / kv_heads);
      const float first = v[kv * size + d], second = v[(kv_heads + kv) * size + d];
      const float one = out[h * size + d], two = out[(heads + h) * size + d];
      if (fabsf(one - first) > 1e-5f || fabsf(two - (first + second) / 2) > 1e-5f)
        return fprintf(stderr, "head %d element %d: %g and %g, wanted %g and %g\n", (int)h, (int)d, one, two, first,
                       (first + second) / 2),
               1;
    }
  printf("anyattn %s: %s of %s\n", anyattn_version(), info.backend, info.plugin);
  anyattn_group_destroy(group);
  for (void *memory[] = {q, k, v, out, blocks}, **it = memory; it < memory + 5; ++it)
    anyattn_device_free(runtime, ANYATTN_DEVICE_CPU, 0, *it);
  anyattn_model_destroy(model);
  anyattn_runtime_destroy(runtime);
  return 0;
}
