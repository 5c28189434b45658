// SPDX-License-Identifier: Apache-2.0
#include "loader/image.h"

#include <array>
#include <boost/dll/shared_library.hpp>
#include <deque>
#include <map>
#include <set>
#include <system_error>

#include "loader/call.h"

namespace anyattn::loader {
namespace {

// Lives as long as the process and is never destroyed: threads of plugins may still run while the process exits.
struct Opened {
  std::mutex mutex;
  std::deque<boost::dll::shared_library> libraries;
  std::map<std::string, std::shared_ptr<Image>> by_content;
  std::map<std::string, std::string> content_by_path;
  std::map<std::string, std::set<std::string>> contents_by_path;
};

Opened& opened() {
  static Opened* const instance = new Opened;
  return *instance;
}

// An exception out of a file's static constructors cannot be caught here: dlopen is declared not to throw, so it ends the
// process like a crash. Only a probe in another process (core/probe) can turn it into a verdict.

// Boost.DLL's codes mean nothing; only the text in the middle does (seen with 1.81):
// "boost::dll::shared_library::load() failed (dlerror system message: TEXT): Bad file descriptor".
std::string linker_text(const std::string& what) {
  constexpr std::string_view kBefore = "dlerror system message: ";
  const size_t begin = what.find(kBefore);
  const size_t end = what.rfind("): ");
  if (begin == std::string::npos || end == std::string::npos || end < begin + kBefore.size()) return what;
  return what.substr(begin + kBefore.size(), end - begin - kBefore.size());
}

std::shared_ptr<Image> load(Opened& all, const std::string& path, std::span<const std::string_view> needed) {
  using boost::dll::load_mode::rtld_local;
  using boost::dll::load_mode::rtld_now;
  try {
    boost::dll::shared_library library(path, rtld_now | rtld_local);
    const anyattn_plugin_entry_fn entry =
        &library.get<int32_t(uint32_t, uint32_t, const anyattn_host*, const anyattn_plugin**, anyattn_error*)>(
            ANYATTN_PLUGIN_ENTRY_NAME);
    auto image = std::make_shared<Image>(path, entry);
    all.libraries.push_back(std::move(library));
    return image;
  } catch (const std::system_error& error) {
    throw explain_linker_text(linker_text(error.what()), path, needed);
  }
}

}  // namespace

std::shared_ptr<Image> Image::open(const std::string& path, const std::string& content,
                                   std::span<const std::string_view> needed) {
  Opened& all = opened();
  const std::lock_guard lock(all.mutex);
  if (const auto known = all.by_content.find(content); known != all.by_content.end()) return known->second;
  // The linker answers a path that it knows with the object it has, whatever the file holds by now.
  if (const auto older = all.content_by_path.find(path); older != all.content_by_path.end() && older->second != content) {
    throw Refusal{discovery::Stage::kOpen, ANYATTN_INVALID_ARGUMENT,
                  "the file was replaced after this process opened it, and an opened file stays",
                  "install the new file under another name, or restart the process"};
  }
  // Before the file is open, so that nothing can fail between opening it and knowing of it.
  std::map<std::string, std::shared_ptr<Image>> by_content{{content, nullptr}};
  std::map<std::string, std::string> content_by_path{{path, content}};
  std::shared_ptr<Image> image = load(all, path, needed);
  by_content.begin()->second = image;
  all.by_content.merge(by_content);
  all.content_by_path.merge(content_by_path);
  return image;
}

bool Image::path_is_taken(const std::string& path, const std::string& content) {
  Opened& all = opened();
  const std::lock_guard lock(all.mutex);
  const auto known = all.content_by_path.find(path);
  return known != all.content_by_path.end() && known->second != content && !all.by_content.contains(content);
}

size_t Image::count_others(const std::string& path, const std::string& content) {
  Opened& all = opened();
  const std::lock_guard lock(all.mutex);
  const std::set<std::string>& contents = all.contents_by_path[path];
  return contents.size() - contents.count(content);
}

void Image::count_content(const std::string& path, const std::string& content) {
  Opened& all = opened();
  const std::lock_guard lock(all.mutex);
  all.contents_by_path[path].insert(content);
}

void Image::add_user() {
  const std::lock_guard lock(mutex_);
  ++num_users_;
}

std::string Image::drop_user(void (*shutdown)(void)) {
  const std::lock_guard lock(mutex_);
  if (--num_users_ > 0 || was_shut_down_) return {};
  was_shut_down_ = true;
  std::array<char, 512> text{};
  anyattn_error error{text.data(), text.size(), 0, 0, 0};
  call_void({path_.c_str(), "shutdown"}, &error, shutdown);
  return text.data();
}

}  // namespace anyattn::loader
