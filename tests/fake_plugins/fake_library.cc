// SPDX-License-Identifier: Apache-2.0
// The library that a fake needs and does not find, or finds in another version.
#ifdef FAKE_LIBRARY_SIDE
__attribute__((used)) static const char kSide[] = "side " FAKE_LIBRARY_SIDE;
#endif
extern "C" __attribute__((visibility("default"))) void anyattn_fake_library_function(void) {}
