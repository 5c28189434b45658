// SPDX-License-Identifier: Apache-2.0
// The library that a fake needs and does not find.
extern "C" __attribute__((visibility("default"))) void anyattn_fake_library_function(void) {}
