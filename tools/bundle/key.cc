// SPDX-License-Identifier: Apache-2.0
// anyattn key: makes, shows and trusts the keys that sign bundles.
#include <anyattn/bundle.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/runtime.h"
#include "vendor_verbs.h"

namespace anyattn::tools {
namespace {

namespace fs = std::filesystem;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Failure(kExitUsage, fmt::format("{}: {}", path, std::strerror(errno)));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Never over another file: a lost private key is lost for good.
void write_new(const std::string& path, const std::string& text, mode_t mode) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file < 0)
    throw Failure(kExitFailed, fmt::format("{}: {}{}", path, std::strerror(errno),
                                           errno == EEXIST ? "; no key is written over: give another name" : ""));
  const bool whole = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (::close(file) == 0 && whole) return;
  const int why = errno;
  ::unlink(path.c_str());  // half a key would be in the way of the next try
  throw Failure(kExitFailed, fmt::format("{}: {}", path, std::strerror(why)));
}

struct Public {
  std::string pem, id;
};
Public public_of(const std::string& pem) {
  char* text = nullptr;
  char* id = nullptr;
  check(anyattn_key_public, pem.c_str(), &text, &id);
  return {take_text(text), take_text(id)};
}

}  // namespace

int key(const KeyOptions& options) {
  if (options.action == "new") {
    char* made = nullptr;
    check(anyattn_key_new, &made);
    const std::string pem = take_text(made);
    const Public half = public_of(pem);
    write_new(options.name + ".key", pem, 0600);
    write_new(options.name + ".pub", half.pem, 0644);
    fmt::print("{}.key: keep it secret\n{}.pub: give it away; key {}\n", options.name, options.name, half.id);
    return kExitOk;
  }
  const Public half = [&] {
    const std::string pem = read_file(options.name);
    try {
      return public_of(pem);
    } catch (const RuntimeError& mistake) {
      throw Failure(exit_code_of(mistake),
                    fmt::format("{}: {}: it {}; 'anyattn key new' makes keys", options.action, options.name, mistake.what()));
    }
  }();
  if (options.action == "export") {
    fmt::print("{}", half.pem);
    return kExitOk;
  }
  const fs::path folder = options.into.empty() ? fs::path("keys") : fs::path(options.into);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Failure(kExitFailed, fmt::format("{}: {}", folder.string(), error.message()));
  const fs::path target = folder / (half.id + ".pub");
  if (!fs::exists(target, error)) write_new(target.string(), half.pem, 0644);
  fmt::print("{}: key {}\n  trust it in the configuration: trust: {{level: signed, keys: [{}]}}\n", target.string(), half.id,
             fs::absolute(target).lexically_normal().string());
  return kExitOk;
}

}  // namespace anyattn::tools
