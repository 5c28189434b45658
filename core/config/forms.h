// SPDX-License-Identifier: Apache-2.0
// Forms of text that several files share: names of backends, plugin ids, versions. Included by the schemas in core/config.
#pragma once

#include "config/schema.h"

namespace anyattn::config {

TextForm backend_name_form();  // ACME_ATTN
TextForm plugin_id_form();     // com.acme.attn
TextForm abi_version_form();   // 0.1
TextForm hash_form();          // 64 hexadecimal digits
TextForm filled_form();        // any text but the empty one

// Names of kDeviceKinds and kCpuIsas.
std::vector<std::string> device_kind_names();
std::vector<std::string> cpu_isa_names();

Schema text(TextForm form = {});
Schema choice(std::vector<std::string> names);
Schema integer(int64_t min, int64_t max);
Schema list_of(Schema element, bool unique, std::string example);

}  // namespace anyattn::config
