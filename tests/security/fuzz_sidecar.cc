// SPDX-License-Identifier: Apache-2.0
// Any bytes as the sidecar of a plugin.
#include "config/sidecar.h"
#include "security/read_yaml_text.h"

namespace anyattn::fuzzing {

void run_sidecar(const uint8_t* data, size_t size) {
  const std::string_view text = text_of_bytes(data, size);
  expect_answer([&] {
    const config::Sidecar sidecar = config::parse_sidecar(text, kFile);
    require(!sidecar.id.empty() && sidecar.path == kFile, "a sidecar has an id and its path");
    require(sidecar.abi_min <= sidecar.abi_max, "a range has an order");
    require(!sidecar.backends.empty() || !sidecar.providers.empty(), "a plugin brings something");
  });
}

}  // namespace anyattn::fuzzing
