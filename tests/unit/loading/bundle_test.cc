// SPDX-License-Identifier: Apache-2.0
// Bundles and trust: what a manifest and a signature vouch for, what every change to them gives, and that nothing that is swapped
// between check and open is ever opened.
#include "discovery/bundle.h"

#include <sys/stat.h>

#include <cstring>

#include "config/manifest.h"
#include "discovery/bundle_contents.h"
#include "discovery/content.h"
#include "inspect/libraries.h"
#include "loader/loader.h"
#include "unit/loading/fakes.h"

namespace {

using anyattn::config::TrustLevel;
using anyattn::discovery::Found;
using anyattn::discovery::Stage;
using anyattn::loader::Loader;
using anyattn::loader::Opened;
namespace fs = std::filesystem;
namespace trust = anyattn::trust;

// A search folder with bundles of fakes in it, a key, and a configuration that trusts it.
class Shop {
 public:
  Shop() : seed_(trust::new_seed()) {
    fs::create_directories(folder_.path() / "plugins");
    fakes::write_file(folder_.path() / "vendor.pub", trust::write_public_key(trust::public_key_of(seed_)));
  }
  fs::path plugins() const { return folder_.path() / "plugins"; }
  fs::path store() const { return folder_.path() / "store"; }
  const trust::Seed& seed() const { return seed_; }

  // The fake as a signed bundle in its own folder; its sidecar says 1.10, and `version` replaces that.
  fs::path add(const std::string& fake, const std::string& name, const std::string& version = "1.10") {
    const fs::path bundle = plugins() / name;
    folder_.add(fake, "plugins/" + name);
    const fs::path sidecar = bundle / ("anyattn_" + fake + ".yaml");
    // Two versions are two contents.
    fakes::write_file(bundle / ("anyattn_" + fake + ".so"), fakes::read_file(fakes::file(fake)) + "version " + version);
    std::string text = fakes::read_file(sidecar);
    text.replace(text.find("\"1.10\""), 6, "\"" + version + "\"");
    fakes::write_file(sidecar, text);
    if (fs::exists(fakes::folder(fake) / "lib"))
      for (const auto& entry : fs::directory_iterator(fakes::folder(fake) / "lib")) copy_library(entry.path(), bundle);
    write_manifest(bundle, anyattn::discovery::describe_folder(bundle.string(), 0));
    return bundle;
  }
  void write_manifest(const fs::path& bundle, const anyattn::config::Manifest& manifest) const {
    sign(bundle, anyattn::config::write_manifest(manifest), seed_);
  }
  static void sign(const fs::path& bundle, const std::string& manifest, const trust::Seed& seed) {
    fakes::write_file(bundle / "manifest.yaml", manifest);
    const trust::Signature signature = trust::sign(std::as_bytes(std::span(manifest)), seed);
    fakes::write_file(bundle / "manifest.sig", std::string(reinterpret_cast<const char*>(signature.data()), signature.size()));
  }
  anyattn::config::Config config(TrustLevel level = TrustLevel::kSigned) const {
    anyattn::config::Config config = fakes::config_of({plugins()});
    config.file = (folder_.path() / "config.yaml").string();
    config.trust_level = level;
    config.trust_keys = {"vendor.pub"};
    return config;
  }
  Found discover(TrustLevel level = TrustLevel::kSigned) const { return fakes::discover(config(level)); }
  // The one refusal, as text; "" where the one file is a candidate.
  std::string refusal(TrustLevel level = TrustLevel::kSigned) const {
    const Found found = discover(level);
    if (found.skips.empty()) return found.candidates.size() == 1 ? "" : "several candidates";
    return anyattn::discovery::text(found.skips[0]);
  }

 private:
  static void copy_library(const fs::path& library, const fs::path& bundle) {
    fs::create_directories(bundle / "lib");
    // By the name that is asked for at run time, not by the link that is used when building.
    if (library.filename().string().find(".so.") != std::string::npos)
      fs::copy_file(library, bundle / "lib" / library.filename(), fs::copy_options::skip_existing);
  }

  fakes::TempFolder folder_;
  trust::Seed seed_;
};

void flip_byte(const fs::path& path, size_t at) {
  std::string bytes = fakes::read_file(path);
  bytes.at(at) = static_cast<char>(bytes.at(at) ^ 1);
  fakes::write_file(path, bytes);
}

anyattn::config::Manifest manifest_of(const fs::path& bundle) {
  return anyattn::config::parse_manifest(fakes::read_file(bundle / "manifest.yaml"), "manifest.yaml");
}

}  // namespace

TEST_CASE("a_signed_bundle_is_a_candidate_and_says_who_signed_it") {
  Shop shop;
  shop.add("good", "good");
  const Found found = shop.discover();
  REQUIRE(found.candidates.size() == 1);
  const auto& candidate = found.candidates[0];
  CHECK(candidate.version == "1.10");
  CHECK(candidate.signed_by == trust::key_id(trust::public_key_of(shop.seed())));
  CHECK(candidate.must_be_copied);
  CHECK_FALSE(shop.discover(TrustLevel::kNone).candidates.at(0).must_be_copied);
}

TEST_CASE("any_changed_byte_of_a_signed_bundle_is_caught") {
  for (const char* name : {"anyattn_good.so", "anyattn_good.yaml", "manifest.yaml", "manifest.sig"}) {
    Shop shop;
    const fs::path file = shop.add("good", "good") / name;
    const std::string bytes = fakes::read_file(file);
    for (size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 40) {
      flip_byte(file, at);
      CAPTURE(name);
      CAPTURE(at);
      const std::string text = shop.refusal();
      CHECK(text != "");
      fakes::write_file(file, bytes);
    }
    CHECK(shop.refusal() == "");
  }
}

TEST_CASE("what_nobody_trusted_signed_is_refused_with_who_did_not") {
  Shop shop;
  const fs::path bundle = shop.add("good", "good");
  const std::string manifest = fakes::read_file(bundle / "manifest.yaml");
  Shop::sign(bundle, manifest, trust::new_seed());
  fakes::check_parts(shop.refusal(), {"failed at trust", "trust.level is signed", "none of the trusted keys", "trust.keys"});
  fs::remove(bundle / "manifest.sig");
  fakes::check_parts(shop.refusal(), {"it has no signature", "have it signed"});
  CHECK(shop.refusal(TrustLevel::kNone) == "");
  fs::remove(bundle / "manifest.yaml");
  fakes::check_parts(shop.refusal(), {"it lies in no bundle", "anyattn bundle install"});
}

TEST_CASE("pins_of_the_configuration_hold_at_every_level") {
  Shop shop;
  const fs::path bundle = shop.add("good", "good", "1.4.2");
  const std::string hash = anyattn::discovery::hash_text(fakes::read_file(bundle / "manifest.yaml"));
  const auto refusal_with = [&](const std::string& pin, const std::string& version, const std::string& key, TrustLevel level) {
    anyattn::config::Config config = shop.config(level);
    anyattn::config::PluginEntry entry;
    entry.id = "org.anyattn.fake.good";
    entry.hash = pin;
    entry.version = version;
    entry.key = key;
    entry.origin.text = "/etc/anyattn.yaml:7";
    config.entries = {entry};
    const Found found = fakes::discover(config);
    return found.skips.empty() ? "" : anyattn::discovery::text(found.skips[0]);
  };
  const std::string content = shop.discover().candidates.at(0).content;
  CHECK(refusal_with(hash, ">=1.4 <2", "", TrustLevel::kHash) == "");
  CHECK(refusal_with(content, "==1.4.2", "", TrustLevel::kHash) == "");
  fakes::check_parts(refusal_with(std::string(64, '0'), "", "", TrustLevel::kNone),
                     {"its hash is " + content, "the entry pins 0000", "/etc/anyattn.yaml:7"});
  fakes::check_parts(refusal_with("", ">=1.5", "", TrustLevel::kNone), {"its version is 1.4.2, the entry pins >=1.5"});
  fakes::check_parts(refusal_with("", "", "0123456789abcdef", TrustLevel::kSigned),
                     {"the entry pins the key 0123456789abcdef"});
  fakes::check_parts(refusal_with("", "", "", TrustLevel::kHash),
                     {"no entry of plugins.entries pins its content", "hash: " + hash});
}

TEST_CASE("the_newer_of_two_bundles_of_one_id_is_used_and_the_other_is_named") {
  Shop shop;
  shop.add("good", "a_newer", "1.10");
  shop.add("good", "b_older", "1.9");
  Found found = shop.discover();
  REQUIRE(found.candidates.size() == 1);
  CHECK(found.candidates[0].version == "1.10");
  Shop other;
  other.add("good", "a_older", "1.9");
  other.add("good", "b_newer", "1.10");
  found = other.discover();
  REQUIRE(found.candidates.size() == 1);
  CHECK(found.candidates[0].version == "1.10");
}

// One plugin, a bundle a target: the manifest says which one this machine takes, and the others say why not.
TEST_CASE("of_one_id_with_many_targets_the_one_for_this_machine_is_used") {
  Shop shop;
  const fs::path arm = shop.add("good", "a", "1.12"), cpu = shop.add("good", "b", "1.11");
  shop.add("good", "c", "1.10");
  anyattn::config::Manifest manifest = manifest_of(arm);
  manifest.target.machine = "aarch64";
  shop.write_manifest(arm, manifest);
  manifest = manifest_of(cpu);
  manifest.target.needs_cpu = ANYATTN_CPU_AVX512;
  shop.write_manifest(cpu, manifest);
  const Found found = shop.discover();
  REQUIRE(found.candidates.size() == 1);
  CHECK(found.candidates[0].version == "1.10");
  REQUIRE(found.skips.size() == 2);
  fakes::check_parts(anyattn::discovery::text(found.skips[0]), {"a/anyattn_good.so", "its bundle is for aarch64"});
  fakes::check_parts(anyattn::discovery::text(found.skips[1]), {"b/anyattn_good.so", "needs a processor with avx512"});
}

TEST_CASE("a_newer_bundle_takes_the_place_of_one_with_another_library_of_the_same_name") {
  for (const std::string fake : {"private_a", "openmp_gnu"}) {
    for (const bool newer_first : {false, true}) {
      CAPTURE(fake);
      CAPTURE(newer_first);
      Shop shop;
      const fs::path newer = shop.add(fake, newer_first ? "a" : "b", "1.10");
      shop.add(fake, newer_first ? "b" : "a", "1.9");
      for (const auto& library : fs::directory_iterator(newer / "lib"))
        fakes::write_file(library.path(), fakes::read_file(library.path()) + "changed");
      shop.write_manifest(newer, anyattn::discovery::describe_folder(newer.string(), 0));
      const auto found_where = [&](const std::map<std::string, std::string>& loaded) {
        anyattn::inspect::LibrarySearch search({.library_path = {}, .loaded = loaded});
        anyattn::discovery::Host host = fakes::host();
        host.libraries = &search;
        return anyattn::discovery::discover(shop.config(), host);
      };
      const Found fresh = found_where({});
      REQUIRE(fresh.candidates.size() == 1);
      CHECK(fresh.candidates[0].version == "1.10");
      REQUIRE(fresh.skips.size() == 1);
      CHECK(fresh.skips[0].stage == Stage::kDiscover);  // no obstacle to a reload
      // A process that has opened the older one's library cannot open the newer one's: it says so and what helps.
      const fs::path old = shop.plugins() / (newer_first ? "b" : "a") / "lib";
      const std::string name = fake == "private_a" ? "libfake_private.so.3" : "libgomp.so.1";
      const Found held = found_where({{name, (old / name).string()}});
      REQUIRE(held.candidates.size() == 1);
      CHECK(held.candidates[0].version == "1.9");
      REQUIRE(held.skips.size() == 1);
      CHECK(held.skips[0].stage == Stage::kInspect);
      fakes::check_parts(anyattn::discovery::text(held.skips[0]),
                         {name, (newer / "lib" / name).string(), (old / name).string(), "restart the process"});
    }
  }
}

TEST_CASE("a_manifest_that_says_other_than_the_files_is_an_error") {
  struct Row {
    const char* what;
    void (*lie)(anyattn::config::Manifest&);
    std::vector<std::string> parts;
  };
  const std::vector<Row> rows = {
      {"id", [](auto& m) { m.id = "com.acme.attn"; }, {"com.acme.attn", "org.anyattn.fake.good"}},
      {"version", [](auto& m) { m.version = "9.0"; }, {"9.0", "1.10"}},
      {"machine",
       [](auto& m) { m.target.machine = m.target.machine == "aarch64" ? "x86-64" : "aarch64"; },
       {"this machine is"}},
      {"glibc", [](auto& m) { m.target.glibc = "99.1"; }, {"needs glibc 99.1"}},
      {"cpu", [](auto& m) { m.target.needs_cpu |= ANYATTN_CPU_AMX_INT8; }, {"needs a processor with amx_int8"}},
  };
  for (const Row& row : rows) {
    Shop shop;
    const fs::path bundle = shop.add("good", "good");
    anyattn::config::Manifest manifest = manifest_of(bundle);
    row.lie(manifest);
    shop.write_manifest(bundle, manifest);
    CAPTURE(row.what);
    fakes::check_parts(shop.refusal(), row.parts);
  }
  // What only reading the binary whole shows.
  Shop shop;
  const fs::path bundle = shop.add("good", "good");
  anyattn::config::Manifest manifest = manifest_of(bundle);
  manifest.target.glibc = "2.0";
  shop.write_manifest(bundle, manifest);
  const auto read = anyattn::discovery::read_bundle(bundle.string(), {}, nullptr);
  REQUIRE(read.has_value());
  const auto finding = anyattn::discovery::check_contents(*read);
  REQUIRE(finding.has_value());
  fakes::check_parts(finding->reason, {"it says glibc 2.0, the file needs 2."});
}

TEST_CASE("a_manifest_that_promises_device_code_is_held_to_the_binary") {
  Shop shop;
  const fs::path bundle = shop.add("device_code", "device_code");
  CHECK(manifest_of(bundle).target.architectures == std::vector<std::string>{"sm_80", "sm_90"});
  CHECK(shop.refusal() == "");  // PTX for 8.6 serves 9.0
  anyattn::config::Manifest manifest = manifest_of(bundle);
  manifest.target.architectures = {"sm_80", "sm_75"};
  shop.write_manifest(bundle, manifest);
  fakes::check_parts(shop.refusal(), {"failed at inspect", "its manifest promises code for sm_75", "compute_86, sm_80"});
  const auto finding = anyattn::discovery::check_contents(*anyattn::discovery::read_bundle(bundle.string(), {}, nullptr));
  REQUIRE(finding.has_value());
  fakes::check_parts(finding->reason, {"it says sm_75, the file holds code for compute_86, sm_80"});
}

// The drivers of a machine made of files.
TEST_CASE("the_driver_floor_of_a_bundle_is_compared_with_the_driver_that_is_there") {
  struct Row {
    const char* accelerator;
    uint32_t floor;
    const char* file;     // below the root; null: no driver
    const char* version;  // what it says
    std::vector<std::string> parts;
  };
  const std::vector<Row> rows = {
      {"cuda", 535, "sys/module/nvidia/version", "535.54.03\n", {}},
      {"cuda", 535, "sys/module/nvidia/version", "580.159.04\n", {}},
      {"cuda", 0, "sys/module/nvidia/version", "1\n", {}},
      {"cuda", 580, "sys/module/nvidia/version", "535.54.03\n", {"needs driver 580", "has 535.54.03", "update the driver"}},
      {"cuda", 580, nullptr, "", {"is for cuda devices", "has no driver for them", "install the driver"}},
      {"cuda", 580, "proc/driver/nvidia/gpus", "", {}},  // there, and does not say which: the plugin's own trial decides
      {"hip", 6, "sys/module/amdgpu/version", "5.18.13\n", {"needs driver 6", "has 5.18.13", "update the driver"}},
      {"hip", 6, "sys/module/nvidia/version", "580.1\n", {"is for hip devices", "has no driver for them"}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.accelerator);
    CAPTURE(row.version);
    Shop shop;
    const fs::path bundle = shop.add("good", "good");
    anyattn::config::Manifest manifest = manifest_of(bundle);
    manifest.target.accelerator = row.accelerator;
    manifest.target.driver = row.floor;
    shop.write_manifest(bundle, manifest);
    const fakes::TempFolder root;
    if (row.file) {
      fs::create_directories((root.path() / row.file).parent_path());
      fakes::write_file(root.path() / row.file, row.version);
    }
    const auto read = anyattn::discovery::read_bundle(bundle.string(), {}, nullptr, root.path().string());
    REQUIRE(read.has_value());
    CHECK(read->unfit.has_value() == !row.parts.empty());
    if (read->unfit) fakes::check_parts(read->unfit->reason + "; " + read->unfit->remedy, row.parts);
  }
}

TEST_CASE("contents_of_a_bundle_are_checked_whole") {
  const auto said = [](const fs::path& bundle) {
    const auto read = anyattn::discovery::read_bundle(bundle.string(), {}, nullptr);
    REQUIRE(read.has_value());
    const auto finding = anyattn::discovery::check_contents(*read);
    return finding ? finding->reason : "";
  };
  Shop shop;
  const fs::path bundle = shop.add("private_a", "private_a");
  CHECK(said(bundle) == "");
  fakes::write_file(bundle / "lib" / "libextra.so", "not listed");
  fakes::check_parts(said(bundle), {"does not list lib/libextra.so"});
  fs::remove(bundle / "lib" / "libextra.so");
  fs::create_symlink("/etc/passwd", bundle / "lib" / "libextra.so");
  fakes::check_parts(said(bundle), {"lib/libextra.so is a link"});
  fs::remove(bundle / "lib" / "libextra.so");
  fs::remove(bundle / "anyattn_private_a.yaml");
  fakes::check_parts(said(bundle), {"lacks anyattn_private_a.yaml"});
}

TEST_CASE("manifests_are_read_strictly") {
  const std::string good = anyattn::config::write_manifest(manifest_of(Shop().add("good", "good")));
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      anyattn::config::parse_manifest(text, "m.yaml");
      return "";
    } catch (const anyattn::config::ConfigError& error) {
      return error.what();
    }
  };
  CHECK(refusal(good) == "");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    REQUIRE(text.find(from) != std::string::npos);
    return refusal(text.replace(text.find(from), from.size(), to));
  };
  CHECK(with("manifest: 1", "manifest: 2") != "");
  CHECK(with("path: anyattn_good.so", "path: ../anyattn_good.so") != "");
  CHECK(with("path: anyattn_good.so", "path: /etc/anyattn_good.so") != "");
  CHECK(with("path: anyattn_good.yaml", "path: anyattn_good.so") != "");
  CHECK(with("plugins: [anyattn_good.so]", "plugins: [anyattn_other.so]") != "");
  CHECK(with("plugins: [anyattn_good.so]", "plugins: []") != "");
  CHECK(with("license:", "unknown_key: 1\nlicense:") != "");
  for (size_t size = 0; size < good.size(); size += 7) refusal(good.substr(0, size));
}

// The file is replaced at each moment between being checked and being opened.
TEST_CASE("what_is_swapped_between_check_and_open_is_never_opened") {
  Shop shop;
  const fs::path bundle = shop.add("version_one", "version");
  const fs::path file = bundle / "anyattn_version_one.so";
  fakes::TestHost host;
  const auto open = [&](const anyattn::discovery::Candidate& candidate) {
    Loader loader(host.services());
    loader.copy_into(shop.store().string(), 8);
    return loader.open(candidate);
  };
  const Found found = shop.discover();
  REQUIRE(found.candidates.size() == 1);
  // 1: after the check, before the copy.
  const std::string checked = fakes::read_file(file);
  fs::rename(file, bundle / "kept");
  fs::copy_file(fakes::file("version_two"), file);
  const Opened swapped = open(found.candidates[0]);
  REQUIRE(swapped.failure.has_value());
  fakes::check_parts(anyattn::discovery::text(*swapped.failure), {"changed after it was checked"});
  fs::rename(bundle / "kept", file);
  // 2: after the copy: what is opened is the copy, whatever lies at the old place.
  const Opened opened = open(found.candidates[0]);
  REQUIRE(opened.plugin);
  CHECK(opened.plugin->path.starts_with(shop.store().string()));
  CHECK(fakes::read_file(opened.plugin->path) == checked);
  CHECK_FALSE(fakes::is_mapped(file));
  // 3: in the store itself, by this user: the next open compares again and restores it.
  // (Renamed over it: writing into a file that is mapped would end this process.)
  std::string other = checked;
  other[100] = static_cast<char>(other[100] ^ 1);
  fakes::write_file(shop.store() / "other", other);
  fs::rename(shop.store() / "other", opened.plugin->path);
  REQUIRE(open(found.candidates[0]).plugin);
  CHECK(fakes::read_file(opened.plugin->path) == checked);
}

TEST_CASE("data_of_a_bundle_travel_with_their_plugin_and_are_held_to_the_manifest") {
  Shop shop;
  const fs::path bundle = shop.add("good", "good");
  fs::create_directories(bundle / "prebuilt");
  fakes::write_file(bundle / "prebuilt/one.code", "machine code");
  shop.write_manifest(bundle, anyattn::discovery::describe_folder(bundle.string(), 0));
  fakes::write_file(bundle / "prebuilt/two.code", "nobody vouched for it");
  const Found found = shop.discover();
  REQUIRE(found.candidates.size() == 1);
  fakes::TestHost host;
  const auto open = [&] {
    Loader loader(host.services());
    loader.copy_into(shop.store().string(), 8);
    return loader.open(found.candidates[0]);
  };
  const Opened opened = open();
  if (opened.failure) FAIL(anyattn::discovery::text(*opened.failure));
  const fs::path copy = fs::path(opened.plugin->path).parent_path() / "prebuilt/one.code";
  CHECK(fakes::read_file(copy) == "machine code");
  CHECK_FALSE(fs::is_symlink(copy));
  CHECK_FALSE(fs::exists(copy.parent_path() / "two.code"));
  fakes::write_file(bundle / "prebuilt/one.code", "other code");
  fakes::write_file(copy, "other code");
  const Opened changed = open();
  REQUIRE(changed.failure.has_value());
  fakes::check_parts(anyattn::discovery::text(*changed.failure), {"one.code", "changed after it was checked"});
}

TEST_CASE("private_libraries_travel_with_their_plugin") {
  Shop shop;
  const fs::path bundle = shop.add("private_b", "private");
  anyattn::inspect::LibrarySearch::Places places;
  anyattn::inspect::LibrarySearch search(places);
  anyattn::discovery::Host with_libraries = fakes::host();
  with_libraries.libraries = &search;
  const Found found = anyattn::discovery::discover(shop.config(), with_libraries);
  for (const auto& skip : found.skips) FAIL(anyattn::discovery::text(skip));
  REQUIRE(found.candidates.size() == 1);
  fakes::TestHost host;
  Loader loader(host.services());
  loader.copy_into(shop.store().string(), 8);
  const Opened opened = loader.open(found.candidates[0]);
  if (opened.failure) FAIL(anyattn::discovery::text(*opened.failure));
  const fs::path library = fs::path(opened.plugin->path).parent_path() / "lib" / "libfake_private.so.3";
  CHECK(fs::exists(library));
  CHECK(fakes::is_mapped(fs::canonical(library)));
  CHECK_FALSE(fakes::is_mapped(bundle / "lib"));
}

TEST_CASE("a_store_that_others_may_write_to_is_refused") {
  Shop shop;
  shop.add("other", "other");
  fs::create_directories(shop.store());
  fs::permissions(shop.store(), fs::perms::all);
  fakes::TestHost host;
  Loader loader(host.services());
  loader.copy_into(shop.store().string(), 8);
  const Opened opened = loader.open(shop.discover().candidates.at(0));
  REQUIRE(opened.failure.has_value());
  fakes::check_parts(anyattn::discovery::text(*opened.failure), {"no private copy can be made", "mode 0700"});
}

TEST_CASE("keys_are_pem_and_bad_ones_are_named") {
  const trust::Seed seed = trust::new_seed();
  const trust::PublicKey key = trust::public_key_of(seed);
  CHECK(trust::read_public_key(trust::write_public_key(key)) == key);
  CHECK(trust::read_private_key(trust::write_private_key(seed)) == seed);
  CHECK(trust::key_id(key).size() == 16);
  const std::string text = "what is signed";
  const auto bytes = std::as_bytes(std::span(text));
  trust::Signature signature = trust::sign(bytes, seed);
  CHECK(trust::verifies(bytes, signature, key));
  signature[5] ^= 1;
  CHECK_FALSE(trust::verifies(bytes, signature, key));
  CHECK_THROWS(trust::read_public_key("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"));
  CHECK_THROWS(trust::read_public_key(trust::write_private_key(seed)));

  fakes::TempFolder folder;
  fakes::write_file(folder.path() / "open.pub", trust::write_public_key(key));
  fs::permissions(folder.path() / "open.pub", fs::perms::all);
  fakes::write_file(folder.path() / "no_key.pub", "hello");
  std::vector<std::string> mistakes;
  CHECK(anyattn::discovery::read_keys({(folder.path() / "open.pub").string(), (folder.path() / "no_key.pub").string(),
                                       (folder.path() / "absent.pub").string()},
                                      mistakes)
            .empty());
  REQUIRE(mistakes.size() == 3);
  fakes::check_parts(mistakes[0], {"open.pub", "writable by every user"});
  fakes::check_parts(mistakes[1], {"no_key.pub", "PUBLIC KEY"});
  fakes::check_parts(mistakes[2], {"absent.pub"});
}

TEST_CASE("versions_compare_by_number_and_ranges_hold_all_terms") {
  using anyattn::config::compare_versions;
  using anyattn::config::version_in_range;
  CHECK(compare_versions("1.9", "1.10") < 0);
  CHECK(compare_versions("1.10", "1.10") == 0);
  CHECK(compare_versions("2", "1.99.99") > 0);
  CHECK(compare_versions("1.0", "1.0.1") < 0);
  CHECK(compare_versions("010", "9") > 0);
  CHECK(version_in_range("1.4.2", ">=1.4 <2"));
  CHECK_FALSE(version_in_range("2.0", ">=1.4 <2"));
  CHECK(version_in_range("1.4", "==1.4"));
  CHECK(version_in_range("anything", ""));
  CHECK_THROWS(version_in_range("1", "~1.4"));
  CHECK_THROWS(version_in_range("1", ">="));
}
