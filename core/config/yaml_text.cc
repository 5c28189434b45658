// SPDX-License-Identifier: Apache-2.0
#include "config/yaml_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "config/config.h"
#include "config/place.h"

namespace anyattn::config {
namespace {

// Length of the UTF-8 sequence at `i`, 0 where the bytes are none (overlong forms and surrogates are none).
size_t utf8_length(std::string_view text, size_t i) {
  const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
  const auto follows = [&](size_t at) { return (byte(at) & 0xc0u) == 0x80u; };
  const unsigned lead = byte(i);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return follows(i + 1) ? 2 : 0;
  if ((lead & 0xf0u) == 0xe0u) {
    if (!follows(i + 1) || !follows(i + 2)) return 0;
    const bool overlong = lead == 0xe0 && byte(i + 1) < 0xa0;
    const bool surrogate = lead == 0xed && byte(i + 1) >= 0xa0;
    return overlong || surrogate ? 0 : 3;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    if (!follows(i + 1) || !follows(i + 2) || !follows(i + 3)) return 0;
    const bool overlong = lead == 0xf0 && byte(i + 1) < 0x90;
    const bool too_large = lead == 0xf4 && byte(i + 1) >= 0x90;
    return overlong || too_large ? 0 : 4;
  }
  return 0;
}

}  // namespace

void refuse_bad_lines(std::string_view text, const std::string& file) {
  Mark mark{1, 1};
  bool indentation = true;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const size_t length = utf8_length(text, i);
    if (length == 0) fail(file, mark, "", fmt::format("the byte 0x{:02x} is not UTF-8 text", static_cast<unsigned char>(c)));
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t')
      fail(file, mark, "", fmt::format("the control character 0x{:02x} is not text", static_cast<unsigned char>(c)));
    if (c == '\t' && indentation) fail(file, mark, "", "a tab stands in the indentation; YAML allows spaces only");
    if (c == '%' && mark.column == 1) fail(file, mark, "", "directives (%...) are not read; remove the line");
    if (c != ' ' && c != '\n' && c != '\r') indentation = false;
    ++mark.column;
    if (c == '\n') {
      mark = {mark.line + 1, 1};
      indentation = true;
    }
    i += length;
  }
}

std::string read_text_file(const std::string& file, size_t limit) {
  // Never blocks on a pipe that somebody put where a file is wanted.
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw ConfigError(fmt::format("{}: cannot be opened: {}", file, std::strerror(errno)));
  struct Closer {
    int fd;
    ~Closer() { close(fd); }
  } closer{fd};
  struct stat status{};
  if (fstat(fd, &status) != 0) throw ConfigError(fmt::format("{}: cannot be examined: {}", file, std::strerror(errno)));
  if (S_ISDIR(status.st_mode)) throw ConfigError(fmt::format("{}: is a folder; name a YAML file in it", file));
  if (!S_ISREG(status.st_mode)) throw ConfigError(fmt::format("{}: is no regular file; name a YAML file", file));
  std::string text;
  char buffer[16384];
  while (true) {
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw ConfigError(fmt::format("{}: cannot be read: {}", file, std::strerror(errno)));
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > limit)
      throw ConfigError(fmt::format("{}: is larger than {} bytes, the most a file may have", file, limit));
  }
}

}  // namespace anyattn::config
