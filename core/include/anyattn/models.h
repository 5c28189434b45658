/* SPDX-License-Identifier: Apache-2.0 */
/* Attention shapes of real models: a model's id -> its kinds of layers as problems, from config/models.yaml or a file like it.
 * Included by engines and tools that ask about a model by name. Knows no weights, no device and no backend. */
#ifndef ANYATTN_MODELS_H
#define ANYATTN_MODELS_H

#include "anyattn/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct anyattn_model anyattn_model; /* one model's shapes, immutable; any thread */

/* `id` is matched exactly, else without regard to case, else as the end of exactly one id ("Llama-3.1-8B"); NOT_FOUND names the
 * nearest ids. models_file null: the models.yaml installed with the library.
 * dtype: ANYATTN_DTYPE_* of queries and outputs; ANYATTN_DTYPE_NONE = the one in the table, an error where it names none. */
ANYATTN_API int32_t anyattn_model_load(const char* models_file, const char* id, uint32_t dtype, anyattn_model** model,
                                       anyattn_error* error);
ANYATTN_API void anyattn_model_destroy(anyattn_model* model);

/* Strings live as long as the model. */
typedef struct anyattn_model_info {
  uint32_t struct_size;     /* end offset of the last field the caller knew                              */
  uint32_t num_layer_kinds; /* > 0                                                                       */
  const char* id;           /* as the table writes it                                                    */
  const char* kind;         /* decoder, encoder, encoder-decoder, vision or hybrid                       */
  uint32_t num_layers;      /* transformer blocks of all kinds                                           */
  uint32_t hidden_size;
  uint32_t max_context; /* positions; 0 where the table does not say                                 */
  uint32_t dtype;       /* what the problems carry                                                   */
} anyattn_model_info;
#define ANYATTN_MODEL_INFO_SIZE ANYATTN_END_OFFSET(anyattn_model_info, dtype)

/* One kind of attention layer. Strings and the problem live as long as the model. */
typedef struct anyattn_layer_kind {
  uint32_t struct_size;           /* end offset of the last field the caller knew                                */
  uint32_t num_layers;            /* layers of this kind, > 0                                                    */
  const char* label;              /* unique within the model: full, sliding, chunked, mla, linear, ssm, encoder, ... */
  const char* unsupported;        /* null, or one sentence: why no problem describes such a layer                */
  const anyattn_problem* problem; /* null where unsupported; block_size 0, kv_cache_dtype "auto" (null where ragged) */
  double softmax_scale;           /* the model's, > 0; 0 where unsupported                                       */
  uint32_t max_keys;              /* keys a request may have in this kind of layer; 0 = the model's max_context  */
  uint32_t reserved;              /* 0                                                                           */
} anyattn_layer_kind;
#define ANYATTN_LAYER_KIND_SIZE ANYATTN_END_OFFSET(anyattn_layer_kind, reserved)

/* Both fill what fits of a struct whose struct_size the caller set. index < num_layer_kinds, in the table's order. */
ANYATTN_API int32_t anyattn_model_get_info(const anyattn_model* model, anyattn_model_info* info, anyattn_error* error);
ANYATTN_API int32_t anyattn_model_get_layer_kind(const anyattn_model* model, uint32_t index, anyattn_layer_kind* kind,
                                                 anyattn_error* error);

/* JSON: file, models[].{id,kind,layers,dtype} in the table's order; models_file as above. */
ANYATTN_API int32_t anyattn_models_list(const char* models_file, char** json, anyattn_error* error);

#ifdef __cplusplus
}
#endif

#endif /* ANYATTN_MODELS_H */
