// SPDX-License-Identifier: Apache-2.0
#include "result_record.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace anyattn::conformance {
namespace {

class Writer {
 public:
  void number(double value) { raw(&value, sizeof value); }
  void text(const std::string& value) {
    const auto size = static_cast<uint32_t>(value.size());
    raw(&size, sizeof size);
    raw(value.data(), value.size());
  }
  void raw(const void* data, size_t size) { bytes_.append(static_cast<const char*>(data), size); }
  std::string take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string bytes) : bytes_(std::move(bytes)) {}
  double number() {
    double value = 0;
    raw(&value, sizeof value);
    return value;
  }
  std::string text() {
    uint32_t size = 0;
    raw(&size, sizeof size);
    if (size > bytes_.size() - at_) throw std::runtime_error("a result record is cut short");
    std::string value(bytes_, at_, size);
    at_ += size;
    return value;
  }

 private:
  void raw(void* into, size_t size) {
    if (at_ + size > bytes_.size()) throw std::runtime_error("a result record is cut short");
    std::memcpy(into, bytes_.data() + at_, size);
    at_ += size;
  }
  std::string bytes_;
  size_t at_ = 0;
};

}  // namespace

std::string record_of(const CaseResult& result, size_t index) {
  Writer out;
  out.number(static_cast<double>(index));
  out.text(result.c.name);
  out.text(case_text(result.c));
  out.number(static_cast<double>(result.verdict));
  out.text(result.message);
  out.number(result.ratio_out);
  out.number(result.ratio_lse);
  out.number(result.max_score);
  out.number(result.lse_over_natural);
  out.number(static_cast<double>(result.hot_calls));
  out.number(result.milliseconds);
  out.number(static_cast<double>(result.reasons.size()));
  for (const Reason& reason : result.reasons) {
    out.number(reason.id);
    for (const std::string* word : {&reason.field, &reason.wanted, &reason.allowed, &reason.hint}) out.text(*word);
  }
  return std::move(out).take();
}

CaseResult read_record(const std::string& bytes, size_t* index) {
  Reader in(bytes);
  *index = static_cast<size_t>(in.number());
  CaseResult result;
  std::string name = in.text();
  result.c = parse_case(in.text());
  result.c.name = std::move(name);
  result.verdict = static_cast<Verdict>(static_cast<int>(in.number()));
  result.message = in.text();
  result.ratio_out = in.number();
  result.ratio_lse = in.number();
  result.max_score = in.number();
  result.lse_over_natural = in.number();
  result.hot_calls = static_cast<uint64_t>(in.number());
  result.milliseconds = in.number();
  result.reasons.resize(static_cast<size_t>(in.number()));
  for (Reason& reason : result.reasons) {
    reason.id = static_cast<uint32_t>(in.number());
    for (std::string* word : {&reason.field, &reason.wanted, &reason.allowed, &reason.hint}) *word = in.text();
  }
  return result;
}

}  // namespace anyattn::conformance
