// SPDX-License-Identifier: Apache-2.0
// The opened file: once per content and process, bound locally and at once, never closed. The only place that knows Boost.DLL.
// Included inside core/loader only. Knows nothing of tables and versions.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "anyattn/plugin.h"
#include "loader/failure.h"

namespace anyattn::loader {

class Image {
 public:
  // Returns the image that already holds this content, else opens `path`. `needed`: what the file itself asks for, for texts.
  // Throws Refusal.
  static std::shared_ptr<Image> open(const std::string& path, const std::string& content,
                                     std::span<const std::string_view> needed);

  // Does the linker know `path` with another content than this one? It would hand that back.
  static bool path_is_taken(const std::string& path, const std::string& content);
  // Contents that this process opened for the file at `path`, `content` left out; and one more of them.
  static size_t count_others(const std::string& path, const std::string& content);
  static void count_content(const std::string& path, const std::string& content);

  Image(std::string file, anyattn_plugin_entry_fn function) : path_(std::move(file)), entry_(function) {}

  const std::string& path() const { return path_; }
  anyattn_plugin_entry_fn entry() const { return entry_; }

  // Counts runtimes. drop_user calls `shutdown` (null allowed) when the last one goes, the first time this happens in the
  // process; an exception in it is answered as a text.
  void add_user();
  std::string drop_user(void (*shutdown)(void));

 private:
  const std::string path_;
  const anyattn_plugin_entry_fn entry_;
  std::mutex mutex_;  // also held during shutdown, so that no new runtime begins in the middle of it
  int num_users_ = 0;
  bool was_shut_down_ = false;
};

// What the dynamic linker's text means for the plugin at `path`. Apart from open() for tests of texts that are hard to cause.
Refusal explain_linker_text(std::string_view text, const std::string& path, std::span<const std::string_view> needed);

}  // namespace anyattn::loader
