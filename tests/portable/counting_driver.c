/* SPDX-License-Identifier: Apache-2.0
 * Named as NVIDIA's driver and loaded before it is looked for: takes every module and counts those that are there. */
#include <stddef.h>

#pragma GCC visibility push(default)

static int modules = 0;
static char something;

int modules_loaded(void) { return modules; }

int cuModuleLoadData(void** module, const void* code) {
  if (!code) return 1;
  *module = &something;
  ++modules;
  return 0;
}
int cuModuleUnload(void* module) {
  (void)module;
  --modules;
  return 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  (void)module, (void)name;
  *function = &something;
  return 0;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
  (void)function, (void)attribute, (void)value;
  return 0;
}
/* Nothing is launched: a test that tries to gets an error. */
int cuLaunchKernel(void) { return 1; }
int cuGetErrorString(int error, const char** text) {
  (void)error;
  *text = "the counting driver launches nothing";
  return 0;
}
