// SPDX-License-Identifier: Apache-2.0
// A file that is written whole or not at all. Included by the verbs that write one which a configuration names.
#pragma once

#include <string>

namespace anyattn::tools {

// Written beside it, then renamed: what was there stays until the new one is complete. Throws Failure with the system's reason.
void write_whole(const std::string& file, const std::string& text);

}  // namespace anyattn::tools
