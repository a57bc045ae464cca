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

  EXPECT_EQ(timeless(out.text()), R"(collect step=10 path="a b" note="say \"x=1\" and go" none="")"
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

TEST(Log, ThatDoesNotSpeakWritesNothing) {
  OutFile out;
  const Log log(false, out.get());

  log.event("collect", {{"step", "10"}});
  log.notice("x");
  log.warning("y");

  EXPECT_EQ(out.text(), "");
}

}  // namespace
}  // namespace headspan
