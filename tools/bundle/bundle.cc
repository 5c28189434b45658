// SPDX-License-Identifier: Apache-2.0
// anyattn bundle: build, sign, verify, install, list, remove, show.
#include <anyattn/bundle.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bundle/archive.h"
#include "common/json_text.h"
#include "common/runtime.h"
#include "common/table.h"
#include "common/whole_file.h"
#include "vendor_verbs.h"

namespace anyattn::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kManifest = "manifest.yaml";
constexpr const char* kSignature = "manifest.sig";

const char* path_or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Failure(kExitUsage, fmt::format("{}: {}", path.string(), std::strerror(errno)));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << bytes;
  out.close();
  if (!out) throw Failure(kExitFailed, fmt::format("{}: {}", path.string(), std::strerror(errno)));
}

// A folder of ours, gone with this object unless it was renamed. Its name begins with a dot: nobody searches it.
class Scratch {
 public:
  explicit Scratch(const fs::path& parent) {
    std::string pattern = (parent / ".anyattn_XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw Failure(kExitFailed, fmt::format("{}: {}", parent.string(), std::strerror(errno)));
    path_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

bool is_archive(const std::string& path) { return path.ends_with(".tar.zst"); }

void copy_files(const fs::path& from, const fs::path& to) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(from)) {
    const std::string name = entry.path().lexically_relative(from).string();
    if (entry.is_symlink() || (!entry.is_regular_file() && !entry.is_directory()))
      throw Failure(kExitFailed, fmt::format("{}: {} is a link or no regular file", from.string(), name));
    if (entry.is_directory()) continue;
    if (!is_plain_name(name))
      throw Failure(kExitFailed, fmt::format("{}: '{}': allowed: names of letters, digits and ._+-", from.string(), name));
    fs::create_directories((to / name).parent_path());
    fs::copy_file(entry.path(), to / name);
  }
}

// What SUBJECT holds, in a folder of ours.
void lay_out(const std::string& subject, const fs::path& folder) {
  std::error_code error;
  if (fs::is_directory(subject, error)) {
    if (!fs::exists(fs::path(subject) / kManifest, error))
      throw Failure(kExitFailed, fmt::format("{}: it holds no {}; anyattn bundle build makes a bundle of a plugin's folder",
                                             subject, kManifest));
    copy_files(fs::canonical(subject), folder);
  } else if (fs::is_regular_file(subject, error)) {
    unpack(subject, folder.string());
  } else if (fs::exists(subject, error)) {
    throw Failure(kExitUsage, fmt::format("{}: it is no folder and no regular file; name a folder or a .tar.zst", subject));
  } else {
    throw Failure(kExitUsage, fmt::format("{}: there is no such bundle; name a folder or a .tar.zst", subject));
  }
}

// Puts a finished folder to OUT, a folder or an archive.
void put(const fs::path& folder, const std::string& out) {
  if (is_archive(out)) return pack(folder.string(), out);
  if (fs::exists(out) && !fs::is_empty(out))
    throw Failure(kExitUsage, fmt::format("{}: it holds something; name a new folder", out));
  fs::create_directories(out);
  copy_files(folder, out);
}

// What the library says of a copy of ours, said of what the user named.
std::string about_subject(std::string text, const fs::path& copy, const std::string& subject) {
  for (size_t at = text.find(copy.string()); at != std::string::npos; at = text.find(copy.string(), at + subject.size()))
    text.replace(at, copy.string().size(), subject);
  return text;
}

// subject: what the user named, where `folder` is a copy of it.
ordered_json verified(const BundleOptions& options, const fs::path& folder, const std::string& subject) {
  char* text = nullptr;
  try {
    check(anyattn_bundle_verify, path_or_null(options.common.config_file), folder.c_str(), &text);
  } catch (const RuntimeError& mistake) {
    // The configuration was read before: this is about the bundle.
    throw Failure(kExitFailed, about_subject(mistake.what(), folder, subject));
  }
  return parse(take_text(text));
}

ordered_json places(const BundleOptions& options) {
  char* text = nullptr;
  check(anyattn_bundle_places, path_or_null(options.common.config_file), &text);
  return parse(take_text(text));
}

std::string folder_name(const ordered_json& bundle) {
  const ordered_json& target = bundle.at("target");
  std::string name = fmt::format("{}-{}-{}", text_of(bundle, "id"), text_of(bundle, "version"), text_of(target, "machine"));
  if (text_of(target, "accelerator") != "none") name += "-" + text_of(target, "accelerator");
  std::ranges::replace_if(name, [](char c) { return c == '/' || c == ' '; }, '_');
  return name;
}

void print_bundle(const ordered_json& bundle) {
  Table table({{""}, {""}});
  for (const char* key : {"id", "version", "vendor", "license", "hash"}) table.add({key, text_of(bundle, key)});
  const std::string by = text_of(bundle, "signed_by");
  table.add({"signed", by.empty() ? Cell("by no trusted key: " + text_of(bundle, "unsigned_why"), Colour::kYellow)
                                  : Cell("by " + by, Colour::kGreen)});
  table.add({"fits", bundle.at("fits").get<bool>() ? Cell("this machine", Colour::kGreen)
                                                   : Cell(text_of(bundle, "unfit_why"), Colour::kYellow)});
  for (const auto& [key, value] : bundle.at("target").items()) {
    const std::string text = text_of(value);
    table.add({key, text.empty() || text == "0" ? "-" : text});
  }
  for (const ordered_json& file : bundle.at("files")) table.add({text_of(file, "path"), text_of(file, "hash")});
  fmt::print("{}", table.render(terminal_of(1)));
}

int build(const BundleOptions& options) {
  std::error_code error;
  if (!fs::is_directory(options.subject, error))
    throw Failure(kExitUsage, fmt::format("build: {}: no such folder; name the one that holds anyattn_*.so", options.subject));
  const Scratch scratch(fs::temp_directory_path());
  copy_files(fs::canonical(options.subject), scratch.path());
  std::error_code ignored;
  fs::remove(scratch.path() / kManifest, ignored);
  fs::remove(scratch.path() / kSignature, ignored);
  char* text = nullptr;
  try {
    check(anyattn_bundle_describe, scratch.path().c_str(), options.driver, &text);
  } catch (const RuntimeError& mistake) {
    throw Failure(exit_code_of(mistake), about_subject(mistake.what(), scratch.path(), options.subject));
  }
  write_file(scratch.path() / kManifest, take_text(text));
  const ordered_json bundle = verified(options, scratch.path(), options.subject);
  const std::string out = options.out.empty() ? folder_name(bundle) + ".tar.zst" : options.out;
  put(scratch.path(), out);
  fmt::print("{}: {} {}, hash {}; unsigned so far\n", out, text_of(bundle, "id"), text_of(bundle, "version"),
             text_of(bundle, "hash"));
  return kExitOk;
}

int sign(const BundleOptions& options) {
  if (options.key.empty()) throw Failure(kExitUsage, "sign: --key FILE is missing; 'anyattn key new' makes one");
  const Scratch scratch(fs::temp_directory_path());
  lay_out(options.subject, scratch.path());
  const std::string manifest = read_file(scratch.path() / kManifest), key = read_file(options.key);
  struct stat info{};
  if (::stat(options.key.c_str(), &info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & 077) != 0)
    fmt::print(stderr, "anyattn bundle: warning: {0}: others may read it or write to it; chmod 600 {0}\n", options.key);
  verified(options, scratch.path(), options.subject);  // nobody vouches for what does not hold together
  std::string signature(64, '\0');
  char* id = nullptr;
  try {
    check(anyattn_key_sign, key.c_str(), static_cast<const void*>(manifest.data()), uint64_t{manifest.size()},
          reinterpret_cast<uint8_t*>(signature.data()));
    check(anyattn_key_public, key.c_str(), static_cast<char**>(nullptr), &id);
  } catch (const RuntimeError& mistake) {
    throw Failure(exit_code_of(mistake),
                  fmt::format("sign: --key {}: it {}; 'anyattn key new' makes one", options.key, mistake.what()));
  }
  if (is_archive(options.subject)) {
    write_file(scratch.path() / kSignature, signature);
    pack(scratch.path().string(), options.subject);
  } else {
    write_whole((fs::path(options.subject) / kSignature).string(), signature);
  }
  fmt::print("{}: signed by {}\n", options.subject, take_text(id));
  return kExitOk;
}

int show(const BundleOptions& options, bool must_be_signed) {
  const Scratch scratch(fs::temp_directory_path());
  lay_out(options.subject, scratch.path());
  const ordered_json bundle = verified(options, scratch.path(), options.subject);
  const JsonOutput output(options.common.json);
  if (output.table()) print_bundle(bundle);
  output.write(bundle);
  if (must_be_signed && bundle.at("signed_by").is_null())
    throw Failure(kExitFailed, fmt::format("{}: {}", options.subject, text_of(bundle, "unsigned_why")));
  return kExitOk;
}

std::string search_folder(const BundleOptions& options) {
  if (!options.into.empty()) return options.into;
  const ordered_json search = places(options).at("search");
  if (search.empty()) throw Failure(kExitUsage, "plugins.search is empty: give --into DIR");
  return search.front().get<std::string>();
}

struct Installed {
  fs::path folder;
  ordered_json bundle;  // null: broken
  std::string broken;
};

std::vector<Installed> installed_below(const BundleOptions& options, const fs::path& parent) {
  std::vector<Installed> found;
  std::error_code error;
  for (fs::directory_iterator entry(parent, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (!fs::exists(entry->path() / kManifest) || entry->path().filename().string().starts_with(".")) continue;
    Installed one{entry->path(), nullptr, ""};
    try {
      one.bundle = verified(options, one.folder, one.folder.string());
    } catch (const Failure& mistake) {
      one.broken = mistake.what();
    }
    found.push_back(std::move(one));
  }
  std::ranges::sort(found, {}, &Installed::folder);
  return found;
}

int install(const BundleOptions& options) {
  const ordered_json where = places(options);
  const fs::path parent = search_folder(options);
  fs::create_directories(parent);
  Scratch scratch(parent);
  const fs::path incoming = scratch.path() / "bundle";
  fs::create_directories(incoming);
  lay_out(options.subject, incoming);
  const ordered_json bundle = verified(options, incoming, options.subject);
  const std::string id = text_of(bundle, "id"), version = text_of(bundle, "version");
  const std::string who = fmt::format("{}: {} {}", options.subject, id, version);
  if (text_of(where, "trust_level") == "signed" && bundle.at("signed_by").is_null())
    throw Failure(kExitFailed, fmt::format("{}: trust.level is signed, and {}", who, text_of(bundle, "unsigned_why")));
  if (!bundle.at("fits").get<bool>() && !options.any_machine)
    throw Failure(kExitFailed,
                  fmt::format("{}: {}; --any-machine installs it all the same", who, text_of(bundle, "unfit_why")));
  for (const Installed& old : installed_below(options, parent)) {
    if (old.bundle.is_null() || text_of(old.bundle, "id") != id || options.allow_downgrade) continue;
    if (anyattn_version_compare(text_of(old.bundle, "version").c_str(), version.c_str()) > 0)
      throw Failure(kExitFailed, fmt::format("{}: {} holds the newer {}; --allow-downgrade installs it all the same", who,
                                             old.folder.string(), text_of(old.bundle, "version")));
  }
  const fs::path target = parent / folder_name(bundle);
  const auto is_there_already = [&] {
    if (!fs::exists(target)) return false;
    const ordered_json there = verified(options, target, target.string());
    if (text_of(there, "hash") != text_of(bundle, "hash"))
      throw Failure(kExitFailed,
                    fmt::format("{}: {} is another bundle of that version; remove it first", who, target.string()));
    fmt::print("{} is installed already in {}\n", id, target.string());
    return true;
  };
  if (is_there_already()) return kExitOk;
  std::error_code error;
  fs::rename(incoming, target, error);  // whole or not at all
  if (error) {
    if (is_there_already()) return kExitOk;  // another install of it came between
    throw Failure(kExitFailed, fmt::format("{}: cannot be put to {}: {}", who, target.string(), error.message()));
  }
  fmt::print("{} {} installed in {}\n  pin it: {{id: {}, version: \"=={}\", hash: {}}}\n", id, version, target.string(), id,
             version, text_of(bundle, "hash"));
  return kExitOk;
}

int list_installed(const BundleOptions& options) {
  ordered_json all = ordered_json::array();
  Table table({{"bundle"}, {"version"}, {"signed by"}, {"fits"}, {"folder"}});
  const ordered_json where = places(options);
  for (const ordered_json& search : where.at("search")) {
    for (const Installed& one : installed_below(options, search.get<std::string>())) {
      ordered_json row = one.bundle.is_null() ? ordered_json{{"broken", one.broken}} : one.bundle;
      row["folder"] = one.folder.string();
      if (one.bundle.is_null()) {
        table.add({{"broken", Colour::kRed}, "", "", {one.broken, Colour::kYellow}, one.folder.string()});
      } else {
        const std::string by = text_of(one.bundle, "signed_by");
        table.add({text_of(one.bundle, "id"), text_of(one.bundle, "version"), by.empty() ? "-" : by,
                   one.bundle.at("fits").get<bool>() ? Cell("yes") : Cell("no", Colour::kYellow), one.folder.string()});
      }
      all.push_back(std::move(row));
    }
  }
  const JsonOutput output(options.common.json);
  if (output.table()) fmt::print("{}", table.empty() ? "no bundle is installed\n" : table.render(terminal_of(1)));
  output.write({{"bundles", all}});
  return kExitOk;
}

int remove(const BundleOptions& options) {
  std::vector<fs::path> found;
  const ordered_json where = places(options);
  for (const ordered_json& search : where.at("search"))
    for (const Installed& one : installed_below(options, search.get<std::string>()))
      if (one.folder.filename() == options.subject || (!one.bundle.is_null() && text_of(one.bundle, "id") == options.subject))
        found.push_back(one.folder);
  if (found.empty())
    throw Failure(kExitFailed,
                  fmt::format("{}: no such bundle is installed; 'anyattn bundle list' shows them", options.subject));
  if (found.size() > 1)
    throw Failure(kExitUsage, fmt::format("{}: {} bundles have this id; name one by its folder, as in {}", options.subject,
                                          found.size(), found.front().filename().string()));
  const Scratch scratch(found.front().parent_path());
  fs::rename(found.front(), scratch.path() / "removed");  // out of sight at once; a process that has it open keeps it
  fmt::print("{} removed\n", found.front().string());
  return kExitOk;
}

}  // namespace

int bundle(const BundleOptions& options) {
  const bool needs_subject = options.action != "list";
  if (needs_subject && options.subject.empty())
    throw Failure(kExitUsage,
                  fmt::format("{}: name a {}", options.action, options.action == "remove" ? "bundle" : "folder or a .tar.zst"));
  places(options);
  try {
    if (options.action == "build") return build(options);
    if (options.action == "sign") return sign(options);
    if (options.action == "verify") return show(options, true);
    if (options.action == "show") return show(options, false);
    if (options.action == "install") return install(options);
    if (options.action == "remove") return remove(options);
    return list_installed(options);
  } catch (const fs::filesystem_error& error) {
    throw Failure(kExitFailed, error.what());
  }
}

}  // namespace anyattn::tools
