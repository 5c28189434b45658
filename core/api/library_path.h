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

}  // namespace anyattn::api
