/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a runtime from the installed configuration, asks which backend takes a small problem, prints its name. */
#include <stdio.h>

#include "anyattn/runtime.h"

int main(void) {
  char text[1024] = "";
  anyattn_error error = {text, sizeof text, 0, 0, 0};
  anyattn_problem problem = {.struct_size = ANYATTN_PROBLEM_SIZE,
                             .num_q_heads = 8,
                             .num_kv_heads = 4,
                             .head_size = 64,
                             .head_size_v = 64,
                             .q_dtype = ANYATTN_DTYPE_FLOAT32,
                             .out_dtype = ANYATTN_DTYPE_FLOAT32};
  anyattn_limits limits = {ANYATTN_LIMITS_SIZE, 1, 1, 1, 128, 0};
  anyattn_group_options options = {
      .struct_size = ANYATTN_GROUP_OPTIONS_SIZE, .problem = &problem, .limits = &limits, .device = "cpu"};
  anyattn_group_info info = {.struct_size = ANYATTN_GROUP_INFO_SIZE};
  anyattn_runtime* runtime = NULL;
  anyattn_group* group = NULL;
  int32_t status = anyattn_runtime_create(NULL, &runtime, &error);
  if (status == ANYATTN_OK) status = anyattn_group_create(runtime, &options, &group, &error);
  if (status == ANYATTN_OK) status = anyattn_group_get_info(group, &info, &error);
  if (status == ANYATTN_OK)
    printf("%s\n", info.backend);
  else
    fprintf(stderr, "%s\n", text);
  anyattn_group_destroy(group);
  anyattn_runtime_destroy(runtime);
  return status == ANYATTN_OK ? 0 : 1;
}
