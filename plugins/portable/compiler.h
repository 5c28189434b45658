// SPDX-License-Identifier: Apache-2.0
// From a specialisation to machine code: the embedded source through the vendor's run-time compiler, or out of a folder of
// compiled code. Included by kernels_gpu.cc. Cold: supports looks whether code is there, warmup takes or makes it.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace anyattn::portable {

// What is compiled at once: one kernel of a lane, or what all lanes share. Small ones, so that they are compiled side by side.
struct Program {
  enum Part : int { kAttend = 0, kMergeParts = 1, kPlan = 2, kRows = 3, kMergeStates = 4 };  // AA_PART of entries.inl
  int lane;
  Part part;
};
std::vector<Program> programs_of(const Specialisation& spec);

// The whole text of a program: constants, then the kernels.
std::string program_text(const Specialisation& spec, const Program& program);

// Why this machine does not compile for the device: the option compiler is off, there is no compiler that suits the driver, or it
// does not know the architecture. Empty: it compiles.
std::string why_not_compile(const Host& host, const anyattn_device_facts& facts);

// Is there code for every program of the first `lanes` lanes, in the folder of the option cache or beside the plugin? Looks at names
// of files only.
bool has_code(const Host& host, const anyattn_device_facts& facts, const Specialisation& spec, int lanes);

// Machine code for the device. Throws UNSUPPORTED with the compiler's log, or where there is no compiler. Threads: any.
std::string machine_code(const Host& host, const anyattn_device_facts& facts, const Specialisation& spec,
                         const Program& program);

}  // namespace anyattn::portable
