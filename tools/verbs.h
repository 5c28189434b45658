// SPDX-License-Identifier: Apache-2.0
// The verbs of the anyattn command and what each is asked, as plain structs. Included by main.cc, which fills them from flags, and
// by the verbs' own files. Knows no flag parser. The verb `run` has a header of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/options.h"

namespace anyattn::tools {

// Which device and which formats; empty or 0: not asked.
struct TargetOptions {
  std::string device = "auto";  // auto, cpu, cuda:N, hip:N
  std::string dtype;            // of queries and outputs
  std::string kv_cache_dtype;
  uint32_t block_size = 0;  // tokens a kernel block
  std::string backend;      // a must; check has its subject instead
};

// Verbs return an ExitCode and throw Failure. Tables go to standard output.

int list(const CommonOptions& options);
int config(const CommonOptions& options);
int doctor(const CommonOptions& options);

struct ExplainOptions {
  CommonOptions common;
  TargetOptions target;
  std::string model;        // an id of the model table; empty: the problem below
  std::string models_file;  // empty: the table installed with the library
  // name and value of every problem field and feature given by a flag, in the words of problem.h: {"head_size", "128"}, {"sinks", ""}
  std::vector<std::pair<std::string, std::string>> problem;
};
int explain(const ExplainOptions& options);

struct GenerateOptions {
  CommonOptions common;
  TargetOptions target;
  std::string checkpoint;
  std::string tokenizer;
  uint32_t num_tokens = 200;
};
int generate(const GenerateOptions& options);

struct CheckOptions {
  CommonOptions common;
  TargetOptions target;
  std::string subject;   // a plugin file, or a backend's name
  std::string provider;  // a plugin file with the provider of the device, where the checked one has none
  std::string stories;   // a dump of the small model's q, k and v; empty: cases with it are skipped
  std::string one_case;  // --case, as a failing case prints itself; empty: all
  uint64_t seed = 1;     // of the random problems
  int jobs = 1;          // cases at work at a time
  std::string beside;    // another plugin file; empty: the first other plugin of the configuration that has a cpu backend
};
int check_backend(const CheckOptions& options);

// Empty lists: what the grid has where nothing is asked.
struct BenchOptions {
  CommonOptions common;
  std::string device = "auto";
  std::string backend;              // a must
  std::string provider;             // a plugin file with the provider of the device; empty: as configured
  std::string model;                // an id of the model table: every kind of its layers
  std::string models_file;          // empty: the table installed with the library
  std::vector<std::string> heads;   // 32/8/128
  std::vector<std::string> phases;  // decode, prefill, chunk
  std::vector<uint32_t> contexts;   // keys of decode and chunk rows
  std::vector<uint32_t> prompts;    // keys of prefill rows
  std::vector<uint32_t> batches;    // requests
  std::vector<std::string> dtypes;  // of queries and outputs
  std::vector<std::string> kv_cache_dtypes;
  std::vector<std::string> caches;   // cold, hot
  std::vector<std::string> threads;  // numbers, all
  uint32_t block_size = 0;           // tokens a kernel block; 0 = the backend's choice
  bool peers = false;                // other libraries' products beside the rows
  bool tiles = false;                // the backend's other cuts of each problem instead of rows against limits
  bool shuffled = false;             // blocks of a request in any order
  bool batch_invariant = false;      // every row again with that feature
  bool wide = false;                 // the table of rows with all its columns
  uint32_t pairs = 9;                // samples of the call and of the limits, alternately
  double min_time_s = 0.02;          // a sample
  std::string html;                  // a file; empty: none
  std::vector<std::string> compare;  // two files of earlier answers; nothing is measured
  uint32_t cold_mib = 1024;          // between two uses of a cold cache
};
int bench_backend(const BenchOptions& options);

}  // namespace anyattn::tools
