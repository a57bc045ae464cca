#include <algorithm>
#include <string>

#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include "base/progress.h"
#include "support/out_file.h"

namespace headspan {
namespace {

TEST(Progress, WritesALineEvery30SecondsAndOneAtTheEndOfALog) {
  OutFile out;
  const Log log(true, out.get());
  double now = 1000;
  Progress progress(log, "collect", "tokens", 30000, {{"checkpoint", "step10"}}, [&] { return now; });

  for (int step = 0; step < 6; ++step) {
    now += 12;
    progress.advance(5000);
  }
  progress.finish();

  EXPECT_EQ(timeless(out.text()),
            "collect checkpoint=step10 tokens=15000/30000 rate=417/s eta=00:00:36 elapsed=00:00:36\n"
            "collect checkpoint=step10 tokens=30000/30000 rate=417/s eta=00:00:00 elapsed=00:01:12\n");
}

TEST(Progress, EndsAShortPhaseWithOneLineAndOnlyOnce) {
  OutFile out;
  const Log log(true, out.get());
  double now = 0;
  {
    Progress progress(log, "solve", "pairs", 4, {}, [&] { return now; });
    now = 2;
    progress.advance(4);

    progress.finish();
  }

  EXPECT_EQ(timeless(out.text()), "solve pairs=4/4 rate=2/s eta=00:00:00 elapsed=00:00:02\n");
}

TEST(Progress, KnowsNoEtaBeforeAnythingIsDone) {
  OutFile out;
  const Log log(true, out.get());
  double now = 0;
  Progress progress(log, "load", "bytes", 10, {}, [&] { return now; });
  now = 31;

  progress.advance(0);

  EXPECT_EQ(timeless(out.text()), "load bytes=0/10 rate=0/s eta=unknown elapsed=00:00:31\n");
}

TEST(Progress, OfAnEmptyPhaseEnds) {
  OutFile out;
  const Log log(true, out.get());

  Progress(log, "load", "bytes", 0, {}, [] { return 5.0; }).finish();

  EXPECT_EQ(timeless(out.text()), "load bytes=0/0 rate=0/s eta=00:00:00 elapsed=00:00:00\n");
}

TEST(Progress, CountsHoursPastADay) {
  OutFile out;
  const Log log(true, out.get());
  double now = 0;
  Progress progress(log, "collect", "tokens", 101, {}, [&] { return now; });
  now = 3600;

  progress.advance(1);

  EXPECT_NE(out.text().find("eta=100:00:00 "), std::string::npos) << out.text();
}

TEST(Progress, RedrawsABarOnATerminalTenTimesASecondAndClearsIt) {
  OutTerminal out;
  const Log log(true, out.get());
  double now = 0;
  Progress progress(log, "collect", "tokens", 100, {}, [&] { return now; });

  for (int step = 1; step <= 100; ++step) {
    now = step * 0.0101;
    progress.advance(1);
  }
  const std::string bars = out.text();
  progress.finish();

  EXPECT_EQ(std::count(bars.begin(), bars.end(), '\r'), 1 + 10);
  EXPECT_NE(bars.find("\r\x1b[Kcollect [............"), std::string::npos) << bars;
  EXPECT_NE(bars.find("[############............] 50/100 tokens, 99/s, eta 00:00:01"), std::string::npos)
      << bars;
  EXPECT_EQ(bars.find('\n'), std::string::npos);
  EXPECT_EQ(out.text(), "\r\x1b[K");
}

/// Returns the bar of a half-finished phase on a terminal of that width.
std::string bar_of(unsigned short columns, const std::string& phase) {
  OutTerminal out;
  const Log log(true, out.get());
  const winsize size{24, columns, 0, 0};
  EXPECT_EQ(ioctl(fileno(out.get()), TIOCSWINSZ, &size), 0);
  double now = 0;
  Progress progress(log, phase, "tokens", 200000000, {}, [&] { return now; });
  now = 1000;
  out.text();
  progress.advance(100000000);
  const std::string text = out.text();
  EXPECT_EQ(text.rfind("\r\x1b[K", 0), 0u) << text;
  return text.substr(std::min<std::size_t>(text.size(), 4));
}

TEST(Progress, ShortensTheBarAndThenLeavesOutWholeFieldsToFitTheTerminal) {
  const std::pair<unsigned short, const char*> bars[] = {
      {200, "forward [############............] 100000000/200000000 tokens, 1e+05/s, eta 00:16:40"},
      {80, "forward [#########..........] 100000000/200000000 tokens, 1e+05/s, eta 00:16:40"},
      {61, "forward [] 100000000/200000000 tokens, 1e+05/s, eta 00:16:40"},
      {60, "forward [######.......] 100000000/200000000 tokens, 1e+05/s"},
      {40, "forward [#.] 100000000/200000000 tokens"},
      {31, "forward [] 100000000/200000000"},
      {30, "forward [#########..........]"},
      {20, "forward [####.....]"},
      {10, "forward"},
      {7, ""},
      {1, ""}};
  for (const auto& [columns, bar] : bars) EXPECT_EQ(bar_of(columns, "forward"), bar) << columns;
}

TEST(Progress, LetsALogLineTakeTheBarsPlaceOnATerminal) {
  OutTerminal out;
  const Log log(true, out.get());
  Progress progress(log, "collect", "tokens", 100, {}, [] { return 0.0; });
  out.text();

  log.warning("x");

  EXPECT_EQ(out.text(), "\r\x1b[Kheadspan: warning: x\n");
}

TEST(Progress, OnALogThatDoesNotSpeakIsSilent) {
  OutFile out;
  const Log log(false, out.get());
  double now = 0;
  Progress progress(log, "collect", "tokens", 10, {}, [&] { return now; });
  now = 60;

  progress.advance(10);
  progress.finish();

  EXPECT_EQ(out.text(), "");
}

}  // namespace
}  // namespace headspan
