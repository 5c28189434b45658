// SPDX-License-Identifier: Apache-2.0
// Load order: the checked plugin beside another one, opened before it and behind it.
#include <cstdint>
#include <memory>
#include <stdexcept>

#include "failure.h"
#include "plugin_file.h"
#include "runner.h"

namespace anyattn::conformance {
namespace {

// An opened file of the child process.
struct Loaded {
  Loaded(const std::string& path, const Options& options)
      : host(options.plugin_options, options.isa_mask), file(open_plugin(path, host)) {}
  Host host;
  PluginFile file;
};

std::vector<Case> small_cases(const anyattn_backend& backend, const std::string& order) {
  const char* const kind = backend.forward ? "paged" : "mla_decode";
  const char* const sizes = backend.forward ? "q=4 kv=2 d=64 lens=3/7,1/40,9/9 seed=741"
                                            : "q=2 lora=512 nope=128 rope=64 vdim=128 lens=1/9,2/33 seed=742";
  std::vector<Case> cases;
  const auto add = [&](const char* dtype, const char* name, const char* more) {
    cases.push_back(parse_case(text("%s %s %s%s", kind, dtype, sizes, more)));
    cases.back().name = text("%s%s/%s%s", order.c_str(), backend.name, dtype, name);
  };
  for (const char* dtype : {"float32", "float16", "bfloat16"}) {
    add(dtype, "", "");
    if (backend.forward) add(dtype, "/lse", " lse=natural");
  }
  return cases;
}

// Runs all of a file's CPU backends. What the other plugin computes is not judged: it is only to have been at work.
void run_all(Loaded& loaded, const std::string& order, const Send& send) {
  for (const anyattn_backend& backend : loaded.file.backends) {
    if (backend.device_kind != ANYATTN_DEVICE_CPU) continue;
    for (const Case& c : small_cases(backend, order))
      if (!send(run_case({&loaded.host, backend, cpu_device_facts(), "", nullptr}, c))) return;
  }
}

CaseResult ended(const std::string& name, Verdict verdict, const std::string& message) {
  CaseResult result;
  result.c = parse_case("contract float32 check=beside");
  result.c.name = name;
  result.verdict = verdict;
  result.message = message;
  return result;
}

// The other plugin's faults are not the checked one's.
struct NoCompany : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::unique_ptr<Loaded> company(const std::string& path) {
  try {
    auto other = std::make_unique<Loaded>(path, Options{});
    run_all(*other, "", [](const CaseResult&) { return true; });
    return other;
  } catch (const std::exception& error) {
    throw NoCompany(error.what());
  }
}

void work(const std::string& path, const Options& options, bool comes_first, const std::string& order, const Send& send) {
  try {
    std::unique_ptr<Loaded> subject, other;
    if (comes_first) subject = std::make_unique<Loaded>(path, options);
    other = company(options.beside);
    if (!comes_first) subject = std::make_unique<Loaded>(path, options);
    run_all(*subject, order, send);
  } catch (const NoCompany& error) {
    send(ended(order, Verdict::kSkipped, error.what()));
  } catch (const std::exception& error) {
    send(ended(order, Verdict::kFailed, error.what()));
  }
}

}  // namespace

std::vector<CaseResult> run_beside(const std::string& path, const Options& options) {
  // What the other plugin does alone says nothing of the checked one.
  const std::string alone = run_child(
      [&](const Send&) {
        try {
          company(options.beside);
        } catch (const NoCompany&) {  // NOLINT(bugprone-empty-catch): said with its reason below
        }
      },
      options.timeout_ms, [](const CaseResult&) {});
  if (!alone.ends_with("status 0")) return {ended("beside/first/", Verdict::kSkipped, options.beside + " alone: " + alone)};
  std::vector<CaseResult> results;
  for (const bool comes_first : {true, false}) {
    const std::string order = comes_first ? "beside/first/" : "beside/second/";
    const std::string end = run_child([&](const Send& send) { work(path, options, comes_first, order, send); },
                                      options.timeout_ms, [&](CaseResult result) { results.push_back(std::move(result)); });
    if (!end.ends_with("status 0")) results.push_back(ended(order, Verdict::kFailed, end));
  }
  for (CaseResult& result : results)
    if (result.verdict == Verdict::kFailed) result.message = "beside " + options.beside + ": " + result.message;
  return results;
}

}  // namespace anyattn::conformance
