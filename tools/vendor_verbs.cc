// SPDX-License-Identifier: Apache-2.0
#include "vendor_verbs.h"

#include <memory>

namespace anyattn::tools {

std::function<int()> add_new_plugin(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("new-plugin", "A plugin project that builds against the installed SDK and passes the kit");
  auto options = std::make_shared<NewPluginOptions>();
  verb->add_option("name", options->name, "acme makes the backend ACME_ATTN in anyattn_acme.so")->type_name("NAME")->required();
  verb->add_option("dir", options->folder, "a new or empty folder")->type_name("DIR")->required();
  verb->add_option("--id", options->id, "of the plugin, a reverse domain name; com.example.NAME where not given")
      ->type_name("ID");
  verb->add_option("--vendor", options->vendor, "who makes it")->type_name("TEXT")->capture_default_str();
  verb->footer(
      "Examples:\n"
      "  anyattn new-plugin acme acme_attn\n"
      "  anyattn new-plugin acme acme_attn --id com.acme.attn --vendor Acme\n");
  return [options] { return new_plugin(*options); };
}

}  // namespace anyattn::tools
