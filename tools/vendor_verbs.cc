// SPDX-License-Identifier: Apache-2.0
#include "vendor_verbs.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/flags.h"

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
      footer("  anyattn new-plugin acme acme_attn\n"
             "  anyattn new-plugin acme acme_attn --id com.acme.attn --vendor Acme\n"));
  return [options] { return new_plugin(*options); };
}

std::function<int()> add_verdicts(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("verdicts", "What opening each plugin in a child process showed, and how to forget it");
  auto options = std::make_shared<VerdictsOptions>();
  verb->add_option("action", options->action,
                   "list: all that are kept; why: one in full; clear: forget, so that it is tried anew")
      ->type_name("list|why|clear")
      ->check(CLI::IsMember({"list", "why", "clear"}).description(""))
      ->required();
  verb->add_option("which", options->which, "of one plugin only")->type_name("ID|FILE");
  add_common(*verb, options->common);
  verb->footer(
      footer("  anyattn verdicts list\n"
             "  anyattn verdicts why com.acme.attn\n"
             "  anyattn verdicts clear /opt/acme/anyattn_acme.so\n"));
  return [options] { return verdicts(*options); };
}

std::function<int()> add_bundle(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("bundle", "Plugins with their libraries as one signed, hashed folder or file");
  auto options = std::make_shared<BundleOptions>();
  const std::vector<std::string> actions = {"build", "sign", "verify", "install", "list", "remove", "show"};
  verb->add_option("action", options->action,
                   "build: from a folder of plugins; sign: with --key; verify: whole and signed by a trusted key;\n"
                   "install: into a searched folder, whole or not at all; list, remove: what is installed; show: what it is")
      ->type_name("build|sign|verify|install|list|remove|show")
      ->check(CLI::IsMember(actions).description(""))
      ->required();
  verb->add_option("subject", options->subject, "a folder or a .tar.zst; for remove a bundle's id or folder")
      ->type_name("PATH|ID");
  verb->add_option("--out,-o", options->out, "build: a .tar.zst or a new folder; ID-VERSION-TARGET.tar.zst where not given")
      ->type_name("PATH");
  verb->add_option("--key", options->key, "sign: the private key")->type_name("FILE");
  verb->add_option("--into", options->into, "install: the folder; the first of plugins.search where not given")
      ->type_name("DIR");
  verb->add_option("--driver", options->driver, "build: the lowest driver version it runs with")
      ->type_name("N")
      ->check(CLI::Range(0u, 1u << 30).description(""));
  verb->add_flag("--allow-downgrade", options->allow_downgrade, "install: although a newer version is there");
  verb->add_flag("--any-machine", options->any_machine, "install: although it is not for this machine");
  add_common(*verb, options->common);
  verb->footer(
      footer("  anyattn bundle build build/plugins/acme -o acme.tar.zst\n"
             "  anyattn bundle sign acme.tar.zst --key acme.key\n"
             "  anyattn bundle install acme.tar.zst --config my.yaml\n"));
  return [options] { return bundle(*options); };
}

std::function<int()> add_key(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("key", "Keys that sign bundles, and whose bundles are trusted");
  auto options = std::make_shared<KeyOptions>();
  verb->add_option("action", options->action,
                   "new: makes NAME.key and NAME.pub; export: prints the public half; trust: keeps it")
      ->type_name("new|export|trust")
      ->check(CLI::IsMember({"new", "export", "trust"}).description(""))
      ->required();
  verb->add_option("name", options->name, "of the new pair, or a key file")->type_name("NAME|FILE")->required();
  verb->add_option("--into", options->into, "trust: folder of trusted keys; keys where not given")->type_name("DIR");
  verb->footer(
      footer("  anyattn key new acme\n"
             "  anyattn key trust acme.pub --into keys\n"));
  return [options] { return key(*options); };
}

std::function<int()> add_lock(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("lock", "Writes down what models' layers get now, for selection.lock");
  auto options = std::make_shared<LockOptions>();
  verb->add_option("--model", options->models, "a model of the table; give it several times for several")
      ->type_name("ID")
      ->take_all()
      ->required();
  verb->add_option("--models", options->explain.models_file, "a model table of your own")->type_name("FILE");
  verb->add_option("--out,-o", options->out, "the lock")->type_name("FILE")->required();
  add_target(*verb, options->explain.target);
  verb->add_option("--config", options->explain.common.config_file,
                   "configuration; else ANYATTN_CONFIG, else the installed default.yaml")
      ->type_name("FILE");
  verb->footer(footer("  anyattn lock --model Llama-3.1-8B --device cpu -o selections.json\n"));
  return [options] { return lock(*options); };
}

}  // namespace anyattn::tools
