// SPDX-License-Identifier: Apache-2.0
// HOOK_CONSTRUCTOR, _ENTRY, _SUPPORTS: code that runs while the file is opened, in the entry, in supports (which has `problem`). HOOK_NUMBER: what
// forward writes.
#include "fake_plugins/hooks.h"

#include "anyattn/problem.h"
#include "fake_plugins/mischief.h"

#ifndef HOOK_CONSTRUCTOR
#define HOOK_CONSTRUCTOR (void)0
#endif
#ifndef HOOK_ENTRY
#define HOOK_ENTRY (void)0
#endif
#ifndef HOOK_SUPPORTS
#define HOOK_SUPPORTS (void)0
#endif

#ifndef HOOK_NUMBER
#define HOOK_NUMBER 0
#endif

namespace {

struct Constructor {
  Constructor() { HOOK_CONSTRUCTOR; }
} constructor;

}  // namespace

namespace fake_hooks {

const char* const id = FAKE_ID;
const char* const name = FAKE_NAME;
const float number = HOOK_NUMBER;
void in_entry() { HOOK_ENTRY; }
void in_supports([[maybe_unused]] const anyattn_problem& problem) { HOOK_SUPPORTS; }

}  // namespace fake_hooks
