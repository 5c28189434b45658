// SPDX-License-Identifier: Apache-2.0
#include "loader/loader.h"

#include <fmt/format.h>

#include <new>
#include <stdexcept>
#include <utility>

#include "discovery/content.h"
#include "inspect/plugin_rules.h"
#include "loader/agreement.h"
#include "loader/host_table.h"
#include "loader/image.h"
#include "loader/store.h"
#include "loader/tables.h"
#include "probe/prober.h"

namespace anyattn::loader {
namespace {

using discovery::Stage;

// Opens what discovery saw and nothing else. A file that was cut meanwhile would end the process with a bus error.
std::shared_ptr<Image> open_image(const discovery::Candidate& candidate) {
  const discovery::FileContent content = discovery::read_content(candidate.path);
  if (!content.error.empty()) {
    throw Refusal{Stage::kOpen, ANYATTN_NOT_FOUND, fmt::format("the file {}", content.error), "check what lies at this path"};
  }
  if (content.hash != candidate.content) {
    throw Refusal{Stage::kOpen, ANYATTN_NOT_FOUND, "the file changed after it was listed",
                  "register it again, or make a new runtime"};
  }
  inspect::ElfFile file;
  if (const auto finding = inspect::read_elf(content.bytes, file)) {
    throw Refusal{Stage::kInspect, ANYATTN_NOT_FOUND, fmt::format("the file {}", finding->reason), finding->remedy};
  }
  return Image::open(candidate.path, candidate.content, file.needed);
}

discovery::Skip skip_of(const discovery::Candidate& candidate, const Refusal& refusal) {
  discovery::Skip skip;
  skip.plugin = candidate.id;
  skip.path = candidate.path;
  skip.stage = refusal.stage;
  skip.status = refusal.status;
  skip.reason = refusal.reason;
  skip.remedy = refusal.remedy;
  skip.required = candidate.entry && candidate.entry->required;
  skip.sidecar = candidate.sidecar;
  return skip;
}

probe::Subject subject_of(const discovery::Candidate& candidate) {
  probe::Subject subject;
  subject.id = candidate.id;
  subject.path = candidate.path;
  subject.content = candidate.content;
  subject.libraries = candidate.libraries;
  if (!candidate.entry) return subject;
  for (const config::Option& option : candidate.entry->options) subject.options.emplace_back(option.key, option.value);
  return subject;
}

// Nothing where the verdict is good.
std::optional<Refusal> refusal_of(const probe::Verdict& verdict) {
  switch (verdict.outcome) {
    case probe::Outcome::kOk:
      return std::nullopt;
    case probe::Outcome::kRefused:
      return Refusal{discovery::stage_from_name(verdict.stage, Stage::kOpen), verdict.status, verdict.reason, verdict.remedy};
    case probe::Outcome::kNoProbe:
      return Refusal{Stage::kProbe, ANYATTN_NOT_FOUND, reason_text(verdict), remedy_text(verdict)};
    default:
      return Refusal{Stage::kProbe, ANYATTN_INTERNAL, reason_text(verdict), remedy_text(verdict)};
  }
}

}  // namespace

Plugin::Plugin(std::shared_ptr<Image> image, std::string content_hash, Tables tables, std::unique_ptr<HostTable> host)
    : id(std::move(tables.id)),
      vendor(std::move(tables.vendor)),
      version(std::move(tables.version)),
      license(std::move(tables.license)),
      path(image->path()),
      content(std::move(content_hash)),
      abi_version(tables.abi_version),
      abi_min(tables.abi_min),
      abi_max(tables.abi_max),
      backends(std::move(tables.backends)),
      providers(std::move(tables.providers)),
      options(std::move(tables.options)),
      image_(std::move(image)),
      host_(std::move(host)),
      shutdown_(tables.shutdown) {}

void Plugin::become_user() {
  image_->add_user();
  is_user_ = true;
}

// One that never came to be used leaves the file's one shutdown to those that are.
Plugin::~Plugin() {
  if (!is_user_) return;
  const std::string mistake = image_->drop_user(shutdown_);
  if (!mistake.empty()) host_->host.log(host_->host.context, ANYATTN_LOG_ERROR, mistake.c_str());
}

const anyattn_host* Plugin::host() const { return &host_->host; }

Loader::Loader(const HostServices& services, AbiRange range, StageFn on_stage)
    : services_(services), range_(range), on_stage_(std::move(on_stage)) {
  if (!services.log || !services.parallel_for || !services.cpu || services.num_workers == 0) {
    throw std::invalid_argument("loader: HostServices needs log, parallel_for, cpu and at least one worker");
  }
}

Opened Loader::open(const discovery::Candidate& candidate) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = by_content_.find(candidate.content); known != by_content_.end())
      return {known->second, std::nullopt};
  }
  try {
    discovery::Candidate placed = candidate;
    placed.path = place_of(candidate);
    // Outside the lock: a file that hangs keeps nobody else from opening.
    if (prober_) {
      const probe::Verdict verdict = prober_->verdict(subject_of(placed));
      if (const auto refusal = refusal_of(verdict)) return {nullptr, skip_of(candidate, *refusal)};
    }
    check_count(candidate);
    const std::lock_guard lock(mutex_);
    if (const auto known = by_content_.find(candidate.content); known != by_content_.end())
      return {known->second, std::nullopt};
    std::shared_ptr<Plugin> plugin = open_new(placed);
    // What may fail comes first; joining the maps does not allocate.
    std::map<std::string, std::string> id{{plugin->id, plugin->path}};
    std::map<std::string, std::shared_ptr<Plugin>> content{{candidate.content, plugin}};
    Image::count_content(candidate.path, candidate.content);
    path_by_id_.merge(id);
    by_content_.merge(content);
    plugin->become_user();
    return {std::move(plugin), std::nullopt};
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const Refusal& refusal) {
    return {nullptr, skip_of(candidate, refusal)};
  } catch (const std::exception& error) {
    return {nullptr, skip_of(candidate, {Stage::kOpen, ANYATTN_INTERNAL, fmt::format("the host failed: {}", error.what()),
                                         "free memory, or report this"})};
  }
}

// By the name of the file: its id may not be known before it is open.
void Loader::check_count(const discovery::Candidate& candidate) const {
  const size_t others = Image::count_others(candidate.path, candidate.content);
  if (others < max_contents_) return;
  throw Refusal{Stage::kOpen, ANYATTN_INVALID_ARGUMENT,
                fmt::format("this process has opened {} different files of the plugin, and an opened file stays", others),
                "restart the process, or raise plugins.max_contents"};
}

std::string Loader::place_of(const discovery::Candidate& candidate) const {
  const bool is_replaced = Image::path_is_taken(candidate.path, candidate.content);
  if (!candidate.must_be_copied && (!is_replaced || store_.empty())) return candidate.path;
  if (store_.empty())
    throw Refusal{Stage::kTrust, ANYATTN_NOT_FOUND, "it must be opened from a private copy, and there is no folder for copies",
                  "give this user a home folder"};
  return put_copy(store_, candidate);
}

std::shared_ptr<Plugin> Loader::open_new(const discovery::Candidate& candidate) {
  const auto enter = [this](Stage stage) {
    if (on_stage_) on_stage_(stage);
  };
  enter(Stage::kOpen);
  const std::shared_ptr<Image> image = open_image(candidate);
  const std::vector<config::Option> options = candidate.entry ? candidate.entry->options : std::vector<config::Option>{};
  const HostTable for_entry(services_, candidate.path, options, range_.max);
  enter(Stage::kNegotiate);
  Tables tables = negotiate(image->entry(), range_, for_entry.host);
  enter(Stage::kRegister);
  if (candidate.sidecar) check_sidecar(tables, *candidate.sidecar);
  if (candidate.entry) check_entry(tables, *candidate.entry);
  if (const auto taken = path_by_id_.find(tables.id); taken != path_by_id_.end()) {
    throw Refusal{Stage::kRegister, ANYATTN_INVALID_ARGUMENT,
                  fmt::format("its id {} is that of the plugin {}, which was opened first", tables.id, taken->second),
                  "remove one of the two"};
  }
  auto host = std::make_unique<HostTable>(services_, tables.id, options, tables.abi_version);
  return std::shared_ptr<Plugin>(new Plugin(image, candidate.content, std::move(tables), std::move(host)));
}

}  // namespace anyattn::loader
