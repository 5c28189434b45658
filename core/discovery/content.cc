// SPDX-License-Identifier: Apache-2.0
#include "discovery/content.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

namespace anyattn::discovery {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{4} << 30;

class Descriptor {
 public:
  // Not blocking: a named pipe with a plugin's name must not stop the start.
  explicit Descriptor(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

FileContent failed(std::string error) {
  FileContent content;
  content.error = std::move(error);
  return content;
}

std::string system_text(int error) { return std::generic_category().message(error); }

FileFacts facts_from(const struct stat& facts) {
  const auto ns = [](const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; };
  return {facts.st_dev, facts.st_ino, static_cast<uint64_t>(facts.st_size), ns(facts.st_mtim), ns(facts.st_ctim)};
}

std::string hash_of(const void* bytes, size_t size) {
  std::array<unsigned char, 32> digest{};
  crypto_generichash(digest.data(), digest.size(), static_cast<const unsigned char*>(bytes), size, nullptr, 0);
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace

std::string hash_text(std::string_view text) { return hash_of(text.data(), text.size()); }

std::optional<FileFacts> facts_of(const std::string& path) {
  struct stat facts{};
  if (::stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return std::nullopt;
  return facts_from(facts);
}

FileContent read_content(const std::string& path) {
  static const bool initialised = sodium_init() >= 0;
  if (!initialised) return failed("cannot be hashed: libsodium does not start");
  const Descriptor file(path);
  if (file.get() < 0) return failed(fmt::format("cannot be read: {}", system_text(errno)));
  struct stat facts{};
  if (::fstat(file.get(), &facts) != 0) return failed(fmt::format("cannot be read: {}", system_text(errno)));
  if (!S_ISREG(facts.st_mode)) return failed("is no regular file");
  const auto size = static_cast<uint64_t>(facts.st_size);
  if (size > kMaxBytes) return failed(fmt::format("has {} bytes, more than a plugin may have ({})", size, kMaxBytes));

  FileContent content;
  content.facts = facts_from(facts);
  content.bytes.resize(size);
  uint64_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.get(), content.bytes.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(fmt::format("cannot be read: {}", system_text(errno)));
    if (got == 0) break;  // it shrank meanwhile: what is there is judged
    done += static_cast<uint64_t>(got);
  }
  content.bytes.resize(done);
  content.held_still = ::fstat(file.get(), &facts) == 0 && facts_from(facts) == content.facts;
  content.hash = hash_of(content.bytes.data(), content.bytes.size());
  return content;
}

}  // namespace anyattn::discovery
