// SPDX-License-Identifier: Apache-2.0
#include "loader/host_table.h"

#include <utility>

namespace anyattn::loader {
namespace {

void log_line(void* context, int32_t level, const char* text) {
  const auto* table = static_cast<const HostTable*>(context);
  try {
    table->services.log(table->services.context, level, (table->name + ": " + (text ? text : "(no text)")).c_str());
  } catch (...) {
    return;  // a line that cannot be written must not end a plugin's call
  }
}

int32_t parallel_for(void* context, uint64_t count, uint64_t grain, anyattn_range_fn fn, void* argument) {
  const auto* table = static_cast<const HostTable*>(context);
  if (!fn) return ANYATTN_INVALID_ARGUMENT;
  return table->services.parallel_for(table->services.context, count, grain, fn, argument);
}

}  // namespace

HostTable::HostTable(const HostServices& given, std::string plugin, const std::vector<config::Option>& values,
                     uint32_t abi_version)
    : services(given), name(std::move(plugin)), texts(values) {
  for (const config::Option& option : texts) {
    options.push_back({ANYATTN_OPTION_SIZE, 0, option.key.c_str(), option.value.c_str()});
  }
  host.struct_size = ANYATTN_HOST_SIZE;
  host.abi_version = abi_version;
  host.context = this;
  host.log = log_line;
  host.parallel_for = parallel_for;
  host.num_workers = services.num_workers;
  host.num_options = static_cast<uint32_t>(options.size());
  host.option_stride = sizeof(anyattn_option);
  host.options = options.empty() ? nullptr : options.data();
  host.cpu = services.cpu;
}

}  // namespace anyattn::loader
