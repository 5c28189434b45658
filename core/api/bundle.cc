// SPDX-License-Identifier: Apache-2.0
#include "anyattn/bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "api/guard.h"
#include "api/runtime_object.h"
#include "config/names.h"
#include "device/cpu_facts.h"
#include "discovery/bundle_contents.h"
#include "log/log.h"

namespace anyattn::api {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

char* copied(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (!copy) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

std::string dump(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace); }
Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

config::Config config_of(const char* path) {
  anyattn_runtime_options options{};
  options.config_path = path;
  return load_config(options);
}

std::vector<discovery::TrustedKey> keys_of(const config::Config& config) {
  std::vector<std::string> paths;
  paths.reserve(config.trust_keys.size());
  for (const std::string& key : config.trust_keys)
    paths.push_back((fs::path(config.file).parent_path() / key).lexically_normal().string());
  std::vector<std::string> mistakes;
  std::vector<discovery::TrustedKey> keys = discovery::read_keys(paths, mistakes);
  for (const std::string& mistake : mistakes) log::warning(mistake);
  return keys;
}

std::string canonical_folder(const char* folder) {
  std::error_code error;
  const fs::path path = fs::canonical(folder, error);
  if (error || !fs::is_directory(path, error))
    throw StatusError(ANYATTN_NOT_FOUND, fmt::format("{}: there is no such folder", folder));
  return path.string();
}

[[noreturn]] void refuse(const inspect::Finding& finding) {
  throw StatusError(ANYATTN_INVALID_ARGUMENT, fmt::format("{}; {}", finding.reason, finding.remedy));
}

Json target_json(const config::Manifest::Target& target) {
  Json needs_cpu = Json::array();
  for (const config::CpuIsaName& isa : config::kCpuIsas)
    if ((target.needs_cpu & isa.bit) != 0) needs_cpu.push_back(isa.name);
  return {{"os", "linux"},
          {"machine", target.machine},
          {"needs_cpu", needs_cpu},
          {"accelerator", target.accelerator},
          {"architectures", target.architectures},
          {"driver", target.driver},
          {"glibc", target.glibc}};
}

Json bundle_json(const discovery::Bundle& bundle) {
  const config::Manifest& manifest = bundle.manifest;
  Json json = {{"id", manifest.id},
               {"version", manifest.version},
               {"vendor", manifest.vendor},
               {"license", manifest.license},
               {"hash", bundle.hash},
               {"signed_by", or_null(bundle.signed_by)},
               {"unsigned_why", or_null(bundle.unsigned_why)},
               {"fits", !bundle.unfit.has_value()},
               {"unfit_why", bundle.unfit ? Json(bundle.unfit->reason + "; " + bundle.unfit->remedy) : Json(nullptr)},
               {"plugins", manifest.plugins},
               {"target", target_json(manifest.target)},
               {"files", Json::array()}};
  for (const config::Manifest::File& file : manifest.files) json["files"].push_back({{"path", file.path}, {"hash", file.hash}});
  return json;
}

// Wrong input of a caller, in the reader's own words.
template <class Body>
auto as_argument(Body&& body) {
  try {
    return body();
  } catch (const std::runtime_error& mistake) {
    throw StatusError(ANYATTN_INVALID_ARGUMENT, mistake.what());
  }
}

}  // namespace
}  // namespace anyattn::api

using namespace anyattn;
using api::as_argument;
using api::guarded;
using api::require_given;

int32_t anyattn_bundle_describe(const char* folder, uint32_t driver, char** manifest, anyattn_error* error) {
  return guarded("anyattn_bundle_describe", error, [&] {
    require_given(folder, "anyattn_bundle_describe", "folder");
    require_given(manifest, "anyattn_bundle_describe", "manifest");
    const std::string path = api::canonical_folder(folder);
    *manifest = as_argument([&] { return api::copied(config::write_manifest(discovery::describe_folder(path, driver))); });
  });
}

int32_t anyattn_bundle_verify(const char* config_path, const char* folder, char** json, anyattn_error* error) {
  return guarded("anyattn_bundle_verify", error, [&] {
    require_given(folder, "anyattn_bundle_verify", "folder");
    require_given(json, "anyattn_bundle_verify", "json");
    const std::string path = api::canonical_folder(folder);
    const std::vector<discovery::TrustedKey> keys = api::keys_of(api::config_of(config_path));
    const auto bundle = discovery::read_bundle(path, keys, &device::cpu_facts());
    if (!bundle) api::refuse({fmt::format("{} holds no {}", path, discovery::kManifestName), "name a bundle's folder"});
    if (const auto finding = discovery::check_contents(*bundle)) api::refuse(*finding);
    *json = api::copied(api::dump(api::bundle_json(*bundle)));
  });
}

int32_t anyattn_bundle_places(const char* config_path, char** json, anyattn_error* error) {
  return guarded("anyattn_bundle_places", error, [&] {
    require_given(json, "anyattn_bundle_places", "json");
    const config::Config config = api::config_of(config_path);
    api::Json whole = {{"trust_level", config::kTrustLevels[static_cast<size_t>(config.trust_level)]},
                       {"search", config.search},
                       {"keys", api::Json::array()}};
    for (const discovery::TrustedKey& key : api::keys_of(config)) whole["keys"].push_back({{"id", key.id}, {"path", key.path}});
    *json = api::copied(api::dump(whole));
  });
}

int32_t anyattn_version_compare(const char* a, const char* b) { return config::compare_versions(a ? a : "", b ? b : ""); }

int32_t anyattn_key_new(char** private_pem, anyattn_error* error) {
  return guarded("anyattn_key_new", error, [&] {
    require_given(private_pem, "anyattn_key_new", "private_pem");
    *private_pem = api::copied(trust::write_private_key(trust::new_seed()));
  });
}

int32_t anyattn_key_public(const char* pem, char** public_pem, char** id, anyattn_error* error) {
  return guarded("anyattn_key_public", error, [&] {
    require_given(pem, "anyattn_key_public", "pem");
    const trust::PublicKey key = as_argument([&] {
      const bool is_private = std::strstr(pem, "PRIVATE KEY") != nullptr;
      return is_private ? trust::public_key_of(trust::read_private_key(pem)) : trust::read_public_key(pem);
    });
    if (public_pem) *public_pem = api::copied(trust::write_public_key(key));
    if (id) *id = api::copied(trust::key_id(key));
  });
}

int32_t anyattn_key_sign(const char* private_pem, const void* bytes, uint64_t size, uint8_t* signature, anyattn_error* error) {
  return guarded("anyattn_key_sign", error, [&] {
    require_given(private_pem, "anyattn_key_sign", "private_pem");
    require_given(bytes, "anyattn_key_sign", "bytes");
    require_given(signature, "anyattn_key_sign", "signature");
    const trust::Seed seed = as_argument([&] { return trust::read_private_key(private_pem); });
    const trust::Signature made = trust::sign({static_cast<const std::byte*>(bytes), size}, seed);
    std::ranges::copy(made, signature);
  });
}
