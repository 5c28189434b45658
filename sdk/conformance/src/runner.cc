// SPDX-License-Identifier: Apache-2.0
#include "runner.h"

#include <chrono>

#include "case_data.h"
#include "contract.h"
#include "failure.h"
#include "heap_watch.h"
#include "run_merge.h"
#include "run_mla.h"
#include "run_plain.h"

namespace anyattn::conformance {
namespace {

void dispatch(const Subject& subject, const Case& c, CaseResult* result) {
  switch (c.kind) {
    case Kind::kPaged:
    case Kind::kRagged:
      return run_plain(subject, c, result);
    case Kind::kMlaDecode:
      return run_mla_decode(subject, c, result);
    case Kind::kMlaPrefill:
      return run_mla_prefill(subject, c, result);
    case Kind::kMerge:
      return run_merge(subject, c, result);
    case Kind::kContract:
      return run_contract(subject, c);
  }
}

void settle(CaseResult* result, Verdict verdict, const std::string& message) {
  result->verdict = verdict;
  result->message = message;
}

}  // namespace

CaseResult run_case(const Subject& subject, const Case& c) {
  CaseResult result;
  result.c = c;
  const uint64_t calls_before = watched_calls();
  const auto start = std::chrono::steady_clock::now();
  try {
    Subject ready = subject;
    if (ready.device) {
      ready.facts = ready.device->open();
      lend_on(ready.device);
    }
    dispatch(ready, c, &result);
  } catch (const Refused& refused) {
    result.reasons = refused.reasons;
    settle(&result, Verdict::kRefused, refused.reasons[0].text());
  } catch (const NotOffered& missing) {
    settle(&result, Verdict::kNotOffered, missing.what());
  } catch (const DataMissing& missing) {
    settle(&result, Verdict::kSkipped, missing.what());
  } catch (const std::exception& failure) {
    settle(&result, Verdict::kFailed, failure.what());
  }
  result.hot_calls = watched_calls() - calls_before;
  result.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace anyattn::conformance
