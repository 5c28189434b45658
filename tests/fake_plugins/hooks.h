// SPDX-License-Identifier: Apache-2.0
// What differs between fakes that share the compiled hooked.cc. Included by it and by hooks.cc.
#pragma once

struct anyattn_problem;

namespace fake_hooks {

extern const char* const id;
extern const char* const name;
extern const float number;  // what forward writes into every element of out; 0: nothing
void in_entry();
void in_supports(const anyattn_problem& problem);

}  // namespace fake_hooks
