#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "base/log.h"
#include "support/out_file.h"

namespace headspan {
namespace {

TEST(Log, WritesOneLinePerEventWithTimePhaseAndFields) {
  OutFile out;

  Log(true, out.get())
      .event("collect", {{"step", "10"}, {"path", "a b"}, {"note", "say \"x=1\"\nand go"}, {"none", ""}});

  EXPECT_EQ(timeless(out.text()), R"(collect step=10 path="a b" note="say \"x=1\"\x0Aand go" none="")"
                                  "\n");
}

TEST(Log, AnEventNeedsNoFields) {
  OutFile out;

  Log(true, out.get()).event("start");

  EXPECT_EQ(timeless(out.text()), "start\n");
}

TEST(Log, FlushesEachNoticeAndWarning) {
  OutFile out;
  const Log log(true, out.get());

  log.notice("12 tokens only");
  const std::string first = out.text();
  log.warning("no held-out part");

  EXPECT_EQ(first, "headspan: notice: 12 tokens only\n");
  EXPECT_EQ(out.text(), first + "headspan: warning: no held-out part\n");
}

TEST(Log, TextNeitherForgesALineNorReachesTheTerminal) {
  OutFile out;
  const Log log(true, out.get());
  const std::string forged = "a\nheadspan: notice: b\x1B[2J\xC2\x9B\x9B";
  const std::string shown = "a\\x0Aheadspan: notice: b\\x1B[2J\\xC2\\x9B\\x9B";

  log.event("load", {{"path", forged}, {"key\n", "\x1B"}});
  const std::string event = out.text();
  log.notice(forged);
  log.warning(forged);

  EXPECT_EQ(timeless(event), "load path=\"" + shown + "\" key\\x0A=\\x1B\n");
  EXPECT_EQ(out.text(), event + "headspan: notice: " + shown + "\nheadspan: warning: " + shown + "\n");
}

TEST(Log, ThatDoesNotSpeakWritesNothing) {
  OutFile out;
  const Log log(false, out.get());

  log.event("collect", {{"step", "10"}});
  log.notice("x");
  log.warning("y");

  EXPECT_EQ(out.text(), "");
}

TEST(Log, QuietPrintsWarningsOnly) {
  OutFile out;
  const Log log(true, out.get(), Verbosity::quiet);

  log.event("collect", {{"step", "10"}});
  log.detail("rank", {{"rank", "0"}});
  log.notice("x");
  log.next("headspan inspect results");
  log.warning("y");

  EXPECT_EQ(out.text(), "headspan: warning: y\n");
}

TEST(Log, VerbosePrintsDetails) {
  OutFile out;

  Log(true, out.get()).detail("rank", {{"rank", "0"}});
  EXPECT_EQ(out.text(), "");
  Log(true, out.get(), Verbosity::verbose).detail("rank", {{"rank", "0"}});
  EXPECT_EQ(timeless(out.text()), "rank rank=0\n");
}

TEST(Log, NamesTheNextCommand) {
  OutFile out;

  Log(true, out.get()).next("headspan inspect results");

  EXPECT_EQ(out.text(), "next: headspan inspect results\n");
}

}  // namespace
}  // namespace headspan
