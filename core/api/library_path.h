// SPDX-License-Identifier: Apache-2.0
// Where the files that come with the library are: default.yaml and models.yaml. Included inside core/api.
// Never looks at the current folder or the environment.
#pragma once

#include <string>

namespace anyattn::api {

// The build tree's copy when the running code lies in the build tree, else share/anyattn seen from the running library, else that
// of the install prefix. Where none exists: the second, so that the error names the place where the file belongs.
std::string installed_file(const std::string& name);

}  // namespace anyattn::api
