// SPDX-License-Identifier: Apache-2.0
#include "plugin_file.h"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>

#include "anyattn/util.h"
#include "failure.h"

namespace anyattn::conformance {
namespace {

std::string version_text(uint32_t version) { return text("%u.%u", version >> 16, version & 0xffffu); }

void check_slots(const anyattn_backend& backend) {
  const std::string name = backend.name ? backend.name : "(no name)";
  const auto want = [&](bool present, const char* slot) {
    if (!present) throw Failure(name + ": the required slot " + slot + " is null");
  };
  want(backend.name, "name");
  want(backend.supports, "supports");
  want(backend.impl_create, "impl_create");
  want(backend.impl_destroy, "impl_destroy");
  want(backend.memory, "memory");
  want(backend.warmup, "warmup");
  want(backend.metadata_create, "metadata_create");
  want(backend.metadata_update, "metadata_update");
  want(backend.metadata_destroy, "metadata_destroy");
  const bool any_mla = backend.forward_mqa || backend.context_gather || backend.forward_mha;
  const bool all_mla = backend.forward_mqa && backend.context_gather && backend.forward_mha;
  if ((backend.forward != nullptr) == any_mla || any_mla != all_mla) {
    throw Failure(name + ": either forward is present, or forward_mqa, context_gather and forward_mha are, never both");
  }
}

}  // namespace

PluginFile open_plugin(const std::string& path, const Host& host) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr), &std::free);
  if (!real) throw Failure(path + ": no such file");
  PluginFile file;
  file.path = real.get();
  void* library = dlopen(real.get(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Failure(text("%s: %s", real.get(), dlerror()));
  const auto entry = reinterpret_cast<anyattn_plugin_entry_fn>(dlsym(library, ANYATTN_PLUGIN_ENTRY_NAME));
  if (!entry) throw Failure(file.path + " exports no " ANYATTN_PLUGIN_ENTRY_NAME "; it is no plugin of this interface");

  const uint32_t low = ANYATTN_ABI_VERSION(ANYATTN_ABI_MAJOR, ANYATTN_ABI_MINOR_LOWEST);
  const uint32_t high = ANYATTN_ABI_VERSION_CURRENT;
  char words[512] = {};
  anyattn_error error{.text = words, .capacity = sizeof words, .length = 0, .status = 0, .reserved = 0};
  const anyattn_plugin* given = nullptr;
  const int32_t status = entry(low, high, host.table(), &given, &error);
  if (status != ANYATTN_OK || !given)
    throw Failure(text("%s: the entry answers status %d: %s", file.path.c_str(), status, words));
  anyattn_read_struct(&file.plugin, ANYATTN_PLUGIN_SIZE, given);
  if (file.plugin.abi_version < low || file.plugin.abi_version > high) {
    throw Failure(file.path + ": chose interface " + version_text(file.plugin.abi_version) + "; this host speaks " +
                  version_text(low) + " to " + version_text(high));
  }
  for (uint32_t i = 0; i < file.plugin.num_backends; ++i) {
    anyattn_backend backend{};
    anyattn_read_struct(&backend, ANYATTN_BACKEND_SIZE, file.plugin.backends[i]);
    check_slots(backend);
    file.backends.push_back(backend);
  }
  return file;
}

}  // namespace anyattn::conformance
