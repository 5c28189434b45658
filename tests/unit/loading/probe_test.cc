// SPDX-License-Identifier: Apache-2.0
// First contact in a child process: each way to go wrong is a verdict, this process lives, and verdicts are kept and expire.
#include "probe/prober.h"

#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>

#include "helper/hygiene.h"
#include "loader/loader.h"
#include "probe/child.h"
#include "unit/loading/fakes.h"

namespace {

using anyattn::discovery::Stage;
using anyattn::loader::Loader;
using anyattn::loader::Opened;
using anyattn::probe::Outcome;
using anyattn::probe::Prober;
using anyattn::probe::Verdict;

const std::string kHelper = std::string(ANYATTN_BINARY_DIR) + "/bin/anyattn-probe";

anyattn::probe::Subject subject(const std::string& name) {
  const auto candidate = fakes::candidate(name);
  return {candidate.id, candidate.path, candidate.content, {}, {}};
}

Verdict verdict_of(const std::string& name, uint32_t timeout_ms = 20000) {
  Prober prober({kHelper, "", timeout_ms});
  return prober.verdict(subject(name));
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("a_sound_plugin_is_ok_and_leaves_no_trace_here") {
  const Verdict verdict = verdict_of("good");
  CHECK(verdict.outcome == Outcome::kOk);
  CHECK(verdict.id == "org.anyattn.fake.good");
  CHECK(verdict.notes.empty());
  CHECK_FALSE(fakes::is_mapped(fakes::file("prints")));
  CHECK(verdict_of("prints").outcome == Outcome::kOk);
  CHECK_FALSE(fakes::is_mapped(fakes::file("prints")));
}

TEST_CASE("every_way_to_end_the_child_is_a_verdict_with_its_stage") {
  struct Row {
    const char* name;
    Outcome outcome;
    const char* stage;
    int number;  // signal or exit code
    std::vector<std::string> parts;
  };
  const std::vector<Row> rows = {
      {"crash_constructor",
       Outcome::kCrash,
       "open",
       SIGILL,
       {"signal 4", "Illegal instruction", "stage open", "for this processor"}},
      {"crash_entry", Outcome::kCrash, "negotiate", SIGSEGV, {"signal 11", "stage negotiate"}},
      {"crash_supports", Outcome::kCrash, "supports", SIGSEGV, {"signal 11", "stage supports"}},
      {"static_runtime_throws",
       Outcome::kCrash,
       "negotiate",
       SIGABRT,
       {"signal 6", "stage negotiate", "ask the plugin's vendor"}},
      {"throw_constructor", Outcome::kCrash, "open", SIGABRT, {"signal 6", "the fake cannot start", "static constructors"}},
      {"exit_constructor", Outcome::kExit, "open", 7, {"status 7", "stage open", "it said: licence server not found"}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    const Verdict verdict = verdict_of(row.name);
#ifdef ANYATTN_SANITIZED
    if (verdict.outcome == Outcome::kExit && row.outcome == Outcome::kCrash)
      continue;  // a sanitizer ends the child with a status
#endif
    CHECK(verdict.outcome == row.outcome);
    CHECK(verdict.stage == row.stage);
    CHECK((row.outcome == Outcome::kExit ? verdict.exit_code : verdict.signal) == row.number);
    CHECK_FALSE(verdict.transient);
    fakes::check_parts(reason_text(verdict) + "; " + remedy_text(verdict), row.parts);
  }
}

// What the allocator says of it, or the bytes before the text, decide whether it aborts or faults.
TEST_CASE("a_text_of_the_host_that_a_plugin_frees_ends_the_child_only") {
  const Verdict verdict = verdict_of("frees_host_text");
  CHECK((verdict.outcome == Outcome::kCrash || verdict.outcome == Outcome::kExit));
  CHECK(verdict.stage == "supports");
  fakes::check_parts(reason_text(verdict) + "; " + remedy_text(verdict),
                     {"child process", "stage supports", "ask the plugin's vendor"});
}

TEST_CASE("a_hang_ends_at_the_deadline_with_its_stage_and_all_its_children") {
  for (const auto& [name, stage] :
       {std::pair("hang_constructor", "open"), std::pair("hang_entry", "negotiate"), std::pair("hang_with_child", "open")}) {
    CAPTURE(name);
    const auto begin = std::chrono::steady_clock::now();
    const Verdict verdict = verdict_of(name, 1500);
    CHECK(verdict.outcome == Outcome::kHang);
    CHECK(verdict.stage == stage);
    CHECK(verdict.seconds >= 1.49);
    CHECK(verdict.transient);
    CHECK(seconds_since(begin) < verdict.seconds + 5);  // not the minute that the child left behind lives
    fakes::check_parts(reason_text(verdict) + remedy_text(verdict), {"did not end within", "probe.timeout_ms"});
  }
}

TEST_CASE("refusals_keep_the_words_they_have_without_a_trial") {
  fakes::TestHost host;
  for (const char* name : {"undefined_symbol", "entry_fails", "short_plugin", "null_slot"}) {
    CAPTURE(name);
    const Opened plain = Loader(host.services()).open(fakes::candidate(name));
    Prober prober({kHelper, "", 20000});
    Loader probing(host.services());
    probing.probe_with(&prober);
    const Opened tried = probing.open(fakes::candidate(name));
    REQUIRE(plain.failure.has_value());
    REQUIRE(tried.failure.has_value());
    CHECK(anyattn::discovery::text(*tried.failure) == anyattn::discovery::text(*plain.failure));
    CHECK(tried.failure->status == plain.failure->status);
  }
}

TEST_CASE("nothing_of_a_plugin_runs_here_before_its_verdict_is_good") {
  fakes::TestHost host;
  Prober prober({kHelper, "", 700});
  Loader loader(host.services());
  loader.probe_with(&prober);
  for (const char* name : {"crash_constructor", "hang_constructor", "exit_constructor", "crash_supports"}) {
    CAPTURE(name);
    const Opened opened = loader.open(fakes::candidate(name));
    CHECK_FALSE(opened.plugin);
    REQUIRE(opened.failure.has_value());
    CHECK(opened.failure->stage == Stage::kProbe);
    CHECK(opened.failure->status == ANYATTN_INTERNAL);
    fakes::check_parts(anyattn::discovery::text(*opened.failure), {name, "failed at probe", "child process"});
    CHECK_FALSE(fakes::is_mapped(fakes::file(name)));
  }
  CHECK(loader.open(fakes::candidate("other")).plugin);
}

TEST_CASE("what_loading_does_to_a_process_is_noted") {
  const Verdict verdict = verdict_of("noisy");
  REQUIRE(verdict.outcome == Outcome::kOk);
  std::string notes;
  for (const std::string& note : verdict.notes) notes += note + "\n";
  fakes::check_parts(notes, {"starts 1 thread", "signal 11", "working folder to /", "environment"});
}

// A process that forks after this has a driver that does not work in its children.
TEST_CASE("a_gpu_driver_started_by_loading_is_noted") {
  anyattn::helper::ProcessState before = anyattn::helper::process_state();
  anyattn::helper::ProcessState after = before;
  after.descriptors.insert("/dev/nvidiactl");
  after.descriptors.insert("/dev/kfd");
  after.descriptors.insert("/tmp/a file");
  const std::vector<std::string> notes = anyattn::helper::changes(before, after);
  REQUIRE(notes.size() == 3);
  fakes::check_parts(notes[0], {"starts the GPU driver", "/dev/kfd", "children forked afterwards cannot use it"});
  fakes::check_parts(notes[1], {"starts the GPU driver", "/dev/nvidiactl"});
  CHECK(notes[2] == "leaves 1 file open");

  const Verdict verdict = verdict_of("starts_gpu");
  CHECK(verdict.outcome == Outcome::kOk);
  const bool noted =
      std::ranges::any_of(verdict.notes, [](const std::string& note) { return note.starts_with("starts the GPU driver"); });
  CHECK(noted == std::filesystem::exists("/dev/nvidiactl"));
}

TEST_CASE("a_chatty_plugin_neither_blocks_nor_reaches_our_output") {
  const auto begin = std::chrono::steady_clock::now();
  CHECK(verdict_of("prints").outcome == Outcome::kOk);
  CHECK(seconds_since(begin) < 20);
}

TEST_CASE("without_its_program_nothing_is_known_and_nothing_is_opened") {
  fakes::TestHost host;
  fakes::TempFolder folder;
  Prober prober({"/nonexistent/anyattn-probe", (folder.path() / "v").string(), 1000});
  Loader loader(host.services());
  loader.probe_with(&prober);
  const Opened opened = loader.open(fakes::candidate("noisy"));
  REQUIRE(opened.failure.has_value());
  fakes::check_parts(anyattn::discovery::text(*opened.failure),
                     {"failed at probe", "/nonexistent/anyattn-probe", "No such file", "probe.enabled: false"});
  CHECK_FALSE(fakes::is_mapped(fakes::file("noisy")));
  CHECK(prober.cache().all().empty());
}

TEST_CASE("verdicts_are_kept_by_content_and_read_by_the_next_process") {
  fakes::TempFolder folder;
  const std::string cache = (folder.path() / "verdicts").string();
  const auto copy = folder.add("crash_constructor");
  anyattn::probe::Subject crash = subject("crash_constructor");
  crash.path = copy.string();
  CHECK(Prober({kHelper, cache, 20000}).verdict(crash).outcome != Outcome::kOk);
  Prober warm({kHelper, cache, 20000});
  REQUIRE(warm.cache().all().size() == 1);
  const Verdict first = warm.cache().all()[0].verdict;
  const Verdict again = warm.verdict(crash);
  CHECK(again.when == first.when);
  CHECK(again.path == copy.string());
  CHECK(std::filesystem::status(cache).permissions() == std::filesystem::perms::owner_all);

  // Another content, other options, another library: another question.
  anyattn::probe::Subject other = crash;
  other.options = {{"in", "nowhere"}};
  warm.verdict(other);
  CHECK(warm.cache().all().size() == 2);
  other.libraries = {copy.string()};
  warm.verdict(other);
  CHECK(warm.cache().all().size() == 3);
  CHECK(warm.forget(copy.string()) == 3);
  CHECK(warm.cache().all().empty());
}

TEST_CASE("a_library_installed_later_makes_a_new_question") {
  fakes::TempFolder folder;
  const std::string library = (folder.path() / "libmissing.so.1").string();
  anyattn::probe::Subject question = subject("good");
  question.libraries = {library};
  Prober prober({kHelper, (folder.path() / "v").string(), 20000});
  prober.verdict(question);
  prober.verdict(question);
  CHECK(prober.cache().all().size() == 1);
  fakes::write_file(library, "now it is there");
  prober.verdict(question);
  CHECK(prober.cache().all().size() == 2);
}

TEST_CASE("what_may_pass_by_itself_expires_and_the_rest_stays") {
  fakes::TempFolder folder;
  const std::string cache = (folder.path() / "v").string();
  const auto age = [&](int64_t seconds) {  // makes every kept verdict older
    const anyattn::probe::VerdictCache kept(cache);
    for (const auto& one : kept.all()) {
      Verdict older = one.verdict;
      older.when -= seconds;
      REQUIRE(kept.keep(one.key, older).empty());
    }
  };
  const Verdict busy = Prober({kHelper, cache, 20000}).verdict(subject("busy_device"));
  CHECK(busy.outcome == Outcome::kRefused);
  CHECK(busy.status == ANYATTN_MEMORY_NOT_NOW);
  CHECK(busy.transient);
  const Verdict lasting = Prober({kHelper, cache, 20000}).verdict(subject("entry_fails"));
  CHECK(lasting.outcome == Outcome::kRefused);
  age(Prober::kTransientSeconds + 60);
  CHECK(Prober({kHelper, cache, 20000}).verdict(subject("busy_device")).when >= busy.when);
  CHECK(Prober({kHelper, cache, 20000}).verdict(subject("good")).outcome == Outcome::kOk);
  age(365 * 86400);
  CHECK(Prober({kHelper, cache, 20000}).verdict(subject("good")).when < busy.when - 86400);
}

TEST_CASE("a_folder_that_others_may_write_to_is_neither_read_nor_written") {
  fakes::TempFolder folder;
  const auto cache = folder.path() / "v";
  Prober prober({kHelper, cache.string(), 20000});
  prober.verdict(subject("good"));
  REQUIRE(prober.cache().all().size() == 1);
  std::filesystem::permissions(cache, std::filesystem::perms::all);
  CHECK(prober.cache().all().empty());
  fakes::check_parts(prober.cache().keep("00", Verdict{}), {"not this user's alone", "mode 0700"});
  std::filesystem::permissions(cache, std::filesystem::perms::owner_all);
}

TEST_CASE("the_folder_of_verdicts_is_bounded_and_the_newest_stay") {
  fakes::TempFolder folder;
  const anyattn::probe::VerdictCache cache((folder.path() / "v").string());
  const size_t most = anyattn::probe::VerdictCache::kMostKept;
  for (size_t i = 0; i < most + 40; ++i) REQUIRE(cache.keep("key" + std::to_string(i), Verdict{}).empty());
  CHECK(cache.all().size() == most);
  CHECK(cache.find("key" + std::to_string(most + 39)).has_value());
  CHECK_FALSE(cache.find("key0").has_value());
}

TEST_CASE("damaged_verdicts_are_no_verdicts") {
  for (const char* text : {"", "{", "[]", "{\"format\": 1}", "{\"format\": 2, \"outcome\": \"ok\"}", "null",
                           "{\"format\": 1, \"outcome\": \"fine\", \"stage\": 1}", "{\"format\": \"x\"}"}) {
    CAPTURE(text);
    CHECK_FALSE(anyattn::probe::from_text(text).has_value());
  }
  Verdict verdict;
  verdict.outcome = Outcome::kHang;
  verdict.said = "bytes \xff that are no text";
  verdict.seconds = 1.5;
  const auto read = anyattn::probe::from_text(anyattn::probe::to_text(verdict));
  REQUIRE(read.has_value());
  CHECK(read->outcome == Outcome::kHang);
  CHECK(read->seconds == 1.5);
}

TEST_CASE("many_threads_that_ask_at_once_share_one_child") {
  fakes::TempFolder folder;
  Prober prober({kHelper, (folder.path() / "v").string(), 20000});
  std::vector<Verdict> verdicts(8);
  {
    std::vector<std::jthread> threads;
    for (Verdict& verdict : verdicts) threads.emplace_back([&] { verdict = prober.verdict(subject("good")); });
  }
  for (const Verdict& verdict : verdicts) CHECK(verdict.outcome == Outcome::kOk);
  CHECK(prober.cache().all().size() == 1);
}

TEST_CASE("an_engine_that_reaps_or_ignores_children_gets_verdicts_all_the_same") {
  struct sigaction before{};
  struct sigaction ignore{};
  ignore.sa_handler = SIG_IGN;
  REQUIRE(::sigaction(SIGCHLD, &ignore, &before) == 0);
  const Verdict ignoring = verdict_of("crash_entry");
  CHECK(verdict_of("good").outcome == Outcome::kOk);
  REQUIRE(::sigaction(SIGCHLD, &before, nullptr) == 0);
  CHECK(ignoring.outcome != Outcome::kOk);
  CHECK(ignoring.outcome != Outcome::kNoProbe);
  CHECK(ignoring.stage == "negotiate");
}
