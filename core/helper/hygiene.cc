// SPDX-License-Identifier: Apache-2.0
#include "helper/hygiene.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstring>
#include <filesystem>
#include <system_error>

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace anyattn::helper {
namespace {

namespace fs = std::filesystem;

uint32_t float_mode() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3fu;  // without the sticky flags of what was computed
#else
  return static_cast<uint32_t>(std::fegetround());
#endif
}

std::set<std::string> descriptors() {
  std::set<std::string> found;
  std::error_code error;
  for (fs::directory_iterator entry("/proc/self/fd", error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code unreadable;
    const std::string target = fs::read_symlink(entry->path(), unreadable).string();
    if (!unreadable && !target.starts_with("/proc/")) found.insert(target);
  }
  return found;
}

size_t count_threads() {
  std::error_code error;
  size_t count = 0;
  for (fs::directory_iterator entry("/proc/self/task", error); !error && entry != fs::directory_iterator();
       entry.increment(error))
    ++count;
  return count;
}

}  // namespace

ProcessState process_state() {
  ProcessState state;
  state.num_threads = count_threads();
  std::error_code ignored;
  state.folder = fs::current_path(ignored).string();
  const char* locale = std::setlocale(LC_ALL, nullptr);
  state.locale = locale ? locale : "";
  state.float_mode = float_mode();
  for (int number = 1; number < 65; ++number) {
    struct sigaction action{};
    if (::sigaction(number, nullptr, &action) == 0)
      state.handlers[static_cast<size_t>(number)] = reinterpret_cast<uintptr_t>(action.sa_handler);
  }
  state.descriptors = descriptors();
  for (char** entry = environ; entry && *entry; ++entry) state.environment.emplace_back(*entry);
  std::ranges::sort(state.environment);
  return state;
}

std::vector<std::string> changes(const ProcessState& before, const ProcessState& after) {
  std::vector<std::string> found;
  if (after.num_threads > before.num_threads) {
    const size_t count = after.num_threads - before.num_threads;
    found.push_back(fmt::format("starts {} thread{}", count, count == 1 ? "" : "s"));
  }
  for (size_t number = 1; number < after.handlers.size(); ++number) {
    if (after.handlers[number] != before.handlers[number])
      found.push_back(fmt::format("changes the handler of signal {} ({})", number, ::strsignal(static_cast<int>(number))));
  }
  if (after.folder != before.folder) found.push_back(fmt::format("changes the working folder to {}", after.folder));
  if (after.locale != before.locale) found.push_back(fmt::format("changes the locale to {}", after.locale));
  if (after.float_mode != before.float_mode) found.emplace_back("changes the floating-point mode");
  if (after.environment != before.environment) found.emplace_back("changes the environment");
  size_t opened = 0;
  for (const std::string& target : after.descriptors) {
    if (before.descriptors.contains(target)) continue;
    const bool is_gpu = target.starts_with("/dev/nvidia") || target.starts_with("/dev/kfd") || target.starts_with("/dev/dri");
    if (is_gpu) {
      found.push_back(
          fmt::format("starts the GPU driver (opens {}), so that children forked afterwards cannot use it", target));
    } else {
      ++opened;
    }
  }
  if (opened > 0) found.push_back(fmt::format("leaves {} file{} open", opened, opened == 1 ? "" : "s"));
  return found;
}

}  // namespace anyattn::helper
