// SPDX-License-Identifier: Apache-2.0
// Which backend answers a problem, and why each other one does not: a pure function of problem, device facts, plugin options,
// registered backends, policy and profile. Included by the API. Creates no impl, touches no device, keeps no state (decision_cache.h
// does).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anyattn/backend.h"
#include "config/config.h"
#include "config/profile.h"
#include "registry/registry.h"
#include "selector/owned_problem.h"
#include "selector/quarantine.h"

namespace anyattn::selector {

enum class Verdict { kChosen, kEligible, kRefused, kFailed };
std::string_view verdict_name(Verdict verdict);  // chosen, eligible, refused, failed

// Why not. id 0: the core's own finding (a plugin that failed, a report that contradicts itself), its sentence in `hint`.
struct Reason {
  uint32_t id = 0;  // ANYATTN_REASON_*
  std::string field;
  std::string wanted;
  std::string allowed;
  std::string hint;
};
std::string describe(const Reason& reason);

// What a profile says of a backend and one batch of the problem.
struct Measured {
  std::string shape;  // "decode 1 x 2048"
  config::Profile::Times times;
};

// One backend asked, in the order it was asked.
struct Candidate {
  std::string backend;
  std::string plugin;  // id; empty where no plugin has the name
  std::string path;
  uint32_t device_kind = 0;
  uint32_t phase = ANYATTN_PHASE_BOTH;  // it was asked for
  registry::Stage stage = registry::Stage::kSupports;
  Verdict verdict = Verdict::kRefused;
  std::vector<Reason> reasons;          // at least one where refused or failed
  anyattn_support_report report{};      // where chosen or eligible
  uint32_t place = 0;                   // in the order without a profile
  std::vector<Measured> measured = {};  // where a profile that counts has times of it
};

// A backend chosen for a phase.
struct Choice {
  uint32_t phase = ANYATTN_PHASE_BOTH;
  registry::OpenBackend backend;
  anyattn_support_report report{};
  std::string origin;  // what decided: "call", "flag", "environment ANYATTN_BACKEND", "rule FILE:LINE",
                       // "selection.backend FILE:LINE", "profile", "order", "unlisted"
};

enum class Error {
  kNone,
  kInvalidProblem,
  kUnknownName,   // with the closest name and the list
  kNotInBuild,    // in selection.order, but no plugin offers it for this device
  kPluginFailed,  // with the loader's cause
  kUnfit,         // asked for by name, with its reasons
  kNobody,        // every candidate's reasons
  kNoCommonSpec,  // two backends, one a phase, that cannot read each other's blocks
};

struct Request {
  const anyattn_problem* problem = nullptr;
  const anyattn_device_facts* device = nullptr;
  // Present devices of selection.allow_fallback's kinds, in its order; an automatic choice may fall to them.
  std::vector<const anyattn_device_facts*> fallback_devices;
  std::string backend;                       // a must of this call; empty = the policy decides
  bool ask_all = false;                      // explain: ask every candidate; else stop at the first that fits
  const config::Profile* profile = nullptr;  // of measured times, that go before the order; null: none
  const Quarantine* quarantine = nullptr;    // automatic choices pass over who is in it; null: nobody is
  // Who takes over from a backend in use must keep what was built on it: accept its cache spec, and whatever else `check` wants.
  struct Successor {
    registry::Key of;
    std::string why;           // it is left
    uint64_t spec_digest = 0;  // 0: no cache
    std::function<std::optional<Reason>(const anyattn_support_report&)> check;
  };
  const Successor* successor = nullptr;
};

// What a profile had to say.
struct ProfileUse {
  std::string key;     // of the problem (profile.h); empty unless ask_all was set or a profile was given
  std::string file;    // of the profile; empty: none was given, or one of another kind of device
  std::string stale;   // why it is ignored as a whole, one sentence; empty: it is not
  bool found = false;  // it is not ignored and has times for the problem
};

struct Decision {
  Error error = Error::kNone;
  int32_t status = ANYATTN_OK;
  std::string text;  // one sentence where error is not kNone

  OwnedProblem problem;           // block_size and kv_cache_dtype filled in where something was chosen
  std::string block_size_origin;  // "user", "backend"; empty where keys are ragged or nothing was chosen
  uint32_t device_kind = 0;       // chosen; that of the request where nothing was
  int32_t device_ordinal = 0;
  std::string origin;  // of the choice; with two: "decode: rule F:3; prefill: order"
  uint64_t generation = 0;
  ProfileUse profile;

  std::vector<Choice> choices;        // none, one (phase as asked), or two: decode, then prefill
  std::vector<OwnedSpec> specs;       // accepted by every choice, best first; empty where keys are ragged
  std::vector<Candidate> candidates;  // in the order asked

  bool ok() const { return error == Error::kNone; }
  const Choice& decode() const { return choices.front(); }
  const Choice& prefill() const { return choices.back(); }
};

// Never throws for what a caller or a plugin can do wrong: Decision says it.
Decision select(const Request& request, const config::Config& config, registry::Registry& registry);

// Mistakes in the policy that no YAML schema can see: a rule's field or value that could never match. Empty, or one sentence
// with FILE:LINE. Called once when a runtime is made.
std::string check_policy(const config::Config& config);

}  // namespace anyattn::selector
