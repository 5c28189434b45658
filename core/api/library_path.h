// SPDX-License-Identifier: Apache-2.0
// Where the files that come with the library are: default.yaml and models.yaml. Included inside core/api.
// Never looks at the current folder or the environment.
#pragma once

#include <string>

namespace anyattn::api {

// The first that exists of: share/anyattn seen from the running library; the build tree's copy, where the running code lies there
// (an install prefix may lie in a build tree too); that of the install prefix. Where none exists: the first, so that the error
// names the place where the file belongs.
std::string installed_file(const std::string& name);

// The program that opens plugins on trial: libexec/anyattn seen from the running library, or the build tree's, as above.
std::string probe_program();
// Where this user's verdicts are kept: ~/.cache/anyattn/verdicts by the password file, or inside the build tree. Empty: nowhere.
std::string verdict_folder();
// Likewise, where private copies of plugins lie.
std::string copy_folder();

}  // namespace anyattn::api
