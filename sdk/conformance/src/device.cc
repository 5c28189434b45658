// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "anyattn/plugin.h"
#include "anyattn/util.h"
#include "failure.h"
#include "tensor.h"

namespace anyattn::conformance {
namespace {

Device* current = nullptr;
std::vector<Twin*> twins;

// The provider in the file for the kind that `device` (cuda:0) names.
anyattn_device_provider find_provider(const std::string& path, const std::string& device, const anyattn_host* host) {
  const std::string kind_name = device.substr(0, device.find(':'));
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr), &std::free);
  if (!real) throw Failure(path + ": no such file");
  void* library = dlopen(real.get(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Failure(text("%s: %s", real.get(), dlerror()));
  const auto entry = reinterpret_cast<anyattn_plugin_entry_fn>(dlsym(library, ANYATTN_PLUGIN_ENTRY_NAME));
  if (!entry) throw Failure(std::string(real.get()) + " exports no " ANYATTN_PLUGIN_ENTRY_NAME);
  const anyattn_plugin* given = nullptr;
  ErrorText error;
  error.expect_ok(entry(ANYATTN_ABI_VERSION(ANYATTN_ABI_MAJOR, ANYATTN_ABI_MINOR_LOWEST), ANYATTN_ABI_VERSION_CURRENT, host,
                        &given, error.get()),
                  "the entry of the device provider");
  anyattn_plugin plugin{};
  anyattn_read_struct(&plugin, ANYATTN_PLUGIN_SIZE, given);
  std::string names;
  for (uint32_t i = 0; i < plugin.num_providers; ++i) {
    anyattn_device_provider table{};
    anyattn_read_struct(&table, ANYATTN_DEVICE_PROVIDER_SIZE, plugin.providers[i]);
    if (kind_name == table.name) return table;
    names += std::string(names.empty() ? "" : ", ") + table.name;
  }
  throw Failure(device + ": " + real.get() + ": no provider for devices of kind '" + kind_name + "'; the file has " +
                (names.empty() ? "none" : names) + "; --provider names a file that has it");
}

}  // namespace

Device::Device(const std::string& provider_path, const std::string& name, const anyattn_host* host) : host_(host) {
  const size_t colon = name.find(':');
  table_ = find_provider(provider_path, name, host);
  if (colon == std::string::npos) return;
  const std::string number = name.substr(colon + 1);
  if (number.empty() || number.size() > 4 ||
      !std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; }))
    throw Failure("device '" + name + "': write KIND:NUMBER, as cuda:0");
  ordinal_ = std::stoi(number);
}

void Device::probe() const {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("the kit cannot make a pipe");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("the kit cannot start a child process");
  if (child == 0) {
    uint32_t count = 0;
    char words[400] = {};
    anyattn_error error{.text = words, .capacity = sizeof words, .length = 0, .status = 0, .reserved = 0};
    const int32_t status = table_.enumerate(host_, &count, &error);
    std::string answer;
    if (status != ANYATTN_OK || count == 0)
      answer = words[0] ? words : "no device";
    else if (ordinal_ >= static_cast<int32_t>(count))
      answer = text("%s:%d: there are %u devices", table_.name, ordinal_, count);
    _exit(write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string answer(400, '\0');
  const ssize_t length = read(ends[0], answer.data(), answer.size());
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  answer.resize(length > 0 ? static_cast<size_t>(length) : 0);
  if (answer.empty() && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) answer = "the device provider ended its process";
  if (!answer.empty()) throw std::runtime_error(answer);
}

const anyattn_device_facts& Device::open() {
  if (open_) return facts_;
  ErrorText error;
  error.expect_ok(table_.set_current(ordinal_, error.get()), "set_current");
  facts_.struct_size = ANYATTN_DEVICE_FACTS_SIZE;
  error.expect_ok(table_.facts(host_, ordinal_, &facts_, error.get()), "facts");
  open_ = true;
  return facts_;
}

void* Device::alloc(uint64_t bytes) const {
  ErrorText error;
  void* memory = nullptr;
  error.expect_ok(table_.alloc(ordinal_, bytes, &memory, error.get()), "alloc");
  return memory;
}

void Device::upload(void* to, const void* from, uint64_t bytes) const {
  ErrorText error;
  error.expect_ok(table_.copy(ordinal_, to, from, bytes, ANYATTN_COPY_HOST_TO_DEVICE, nullptr, error.get()), "copy");
}

void Device::download(void* to, const void* from, uint64_t bytes) const {
  ErrorText error;
  error.expect_ok(table_.copy(ordinal_, to, from, bytes, ANYATTN_COPY_DEVICE_TO_HOST, nullptr, error.get()), "copy");
}

void Device::wait() const {
  ErrorText error;
  error.expect_ok(table_.stream_synchronize(ordinal_, nullptr, error.get()), "the device");
}

Device* lending_device() { return current; }
void lend_on(Device* device) { current = device; }

Twin::Twin(void* host, uint64_t bytes)
    : device_(current), host_(host), bytes_(bytes), memory_(current->alloc(bytes)), ranges_{{0, bytes}} {
  twins.push_back(this);
}

Twin::~Twin() {
  std::erase(twins, this);
  device_->free(memory_);
}

void Twin::copy(bool to_device) const {
  for (const auto& [offset, bytes] : ranges_) {
    char* host = static_cast<char*>(host_) + offset;
    if (to_device)
      device_->upload(at(offset), host, bytes);
    else
      device_->download(host, at(offset), bytes);
  }
}

void upload_all() {
  for (const Twin* twin : twins) twin->copy(true);
}

void download_all() {
  if (!current) return;
  current->wait();
  for (const Twin* twin : twins) twin->copy(false);
  current->wait();
}

}  // namespace anyattn::conformance
