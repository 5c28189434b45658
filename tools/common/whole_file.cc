// SPDX-License-Identifier: Apache-2.0
#include "common/whole_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "common/failure.h"

namespace anyattn::tools {

void write_whole(const std::string& file, const std::string& text) {
  const std::string beside = file + ".new";
  std::ofstream out(beside, std::ios::binary);
  out << text;
  out.close();
  if (!out || std::rename(beside.c_str(), file.c_str()) != 0) {
    const int why = errno;
    std::remove(beside.c_str());
    throw Failure(kExitFailed, fmt::format("{}: cannot be written: {}", file, std::strerror(why)));
  }
}

}  // namespace anyattn::tools
