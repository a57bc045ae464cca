#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "app/job/job_file.h"
#include "app/job/job_options.h"
#include "support/input_error.h"

namespace headspan {
namespace {

const char* const kSmallest = "[model]\npath = m\n[tokens]\npath = t.bin\n[output]\ndirectory = out\n";

Job read(const std::string& text) { return make_job(Command::study, "a.ini", read_job_text("a.ini", text)); }

/// The smallest job with `lines` behind it.
Job read_more(const std::string& lines) { return read(kSmallest + lines); }

std::string refusal(const std::string& lines) {
  return input_error_of([&] { read_more(lines); });
}

TEST(Job, HasTheDefaultsOfTheContract) {
  const Job job = read(kSmallest);

  EXPECT_EQ(
      to_ini(job),
      "[model]\npath = m\nselect = all\ninit = pretrained\nseed = 0\ndtype = auto\n"
      "\n[tokens]\npath = t.bin\nformat = auto\ndtype = auto\nsequence_length = 2048\nlimit = "
      "30000\neos = auto\n"
      "heldout = 0.25\nskip_first = 0\nseed = 0\n"
      "\n[predict]\nstreams = k,q,v\ncapture = roped\nreferences = 5\npool = 16\nselection = "
      "pairwise,forward\n"
      "similarity = none\nmode = corrected\nprecision = float64\n"
      "\n[cross]\nstreams = none\n"
      "\n[ceiling]\nenabled = true\nscope = layer\n"
      "\n[overlap]\nenabled = true\nprojections = q,k,v\ntolerances = "
      "paper,1e-1,1e-2,1e-3,1e-4\neffective = both\n"
      "\n[attention]\nscores = false\n"
      "\n[run]\ndevice = auto\ngroups = 1\ntensor_parallel = auto\ngrid = auto\nbatch_tokens = auto\n"
      "save_minutes = 30\ntime_limit = 0\nheartbeat_seconds = 60\nmemory_gib = auto\ngpu_memory_gib = auto\n"
      "\n[output]\ndirectory = out\nsave_gram = false\noverwrite = false\n");
}

TEST(Job, ReadsEveryKey) {
  const std::string text =
      "[model]\nmanifest = a b/m.tsv\nselect = step0,step 10\ninit = pretrained,random\nseed = "
      "9000000000\ndtype = float64\n"
      "\n[tokens]\npath = t.npy\nformat = npy\ndtype = uint32\nsequence_length = 128\nlimit = 77\neos = 0,5\n"
      "heldout = 0.1\nskip_first = 4\nseed = 3\n"
      "\n[predict]\nstreams = v,k\ncapture = proj\nreferences = 3\npool = 8\nselection = forward\n"
      "similarity = procrustes,cka\nmode = corrected\nprecision = split\n"
      "\n[cross]\nstreams = z:v,q:k\nmodel = step 10\ngrams = g.gram.h5\n"
      "\n[ceiling]\nenabled = false\nscope = both\n"
      "\n[overlap]\nenabled = false\nprojections = k\ntolerances = 0.03\neffective = raw\n"
      "\n[attention]\nscores = true\n"
      "\n[run]\ndevice = cpu\ngroups = 2\ntensor_parallel = 4\ngrid = 2x3\nbatch_tokens = 4096\n"
      "save_minutes = 0.5\ntime_limit = 115\nheartbeat_seconds = 0\nmemory_gib = 3.5\ngpu_memory_gib = 79.5\n"
      "\n[output]\ndirectory = out dir\nsave_gram = true\noverwrite = true\n";

  const Job job = read(text);

  EXPECT_EQ(to_ini(job), text);
  EXPECT_EQ(job.model.select, (Words{"step0", "step 10"}));
  EXPECT_EQ(job.model.seed, 9000000000);
  EXPECT_EQ(job.tokens.eos, (std::vector<std::int64_t>{0, 5}));
  EXPECT_EQ(job.tokens.heldout, 0.1);
  EXPECT_EQ(job.run.grid->rows, 2);
  EXPECT_EQ(job.run.grid->columns, 3);
  EXPECT_EQ(job.run.memory_gib, 3.5);
  EXPECT_EQ(job.run.gpu_memory_gib, 79.5);
  EXPECT_TRUE(job.output.overwrite);
}

TEST(Job, ReadsItsOwnEcho) {
  for (const char* lines : {"", "[predict]\nmode = paper\n", "[run]\ngrid = 1x6\ntensor_parallel = 2\n"}) {
    const std::string echo = to_ini(read_more(lines));

    EXPECT_EQ(to_ini(read(echo)), echo);
  }
}

TEST(Job, TakesItsInputFromFourPlaces) {
  EXPECT_EQ(read("[activations]\npath = a.h5\n[output]\ndirectory = o\n").activations.path, "a.h5");
  EXPECT_EQ(read("[grams]\npaths = a.h5 , b c.h5\n[output]\ndirectory = o\n").grams.paths,
            (Words{"a.h5", "b c.h5"}));
  EXPECT_EQ(read("[model]\nmanifest = m.tsv\n[tokens]\npath = t\n[output]\ndirectory = o\n").model.manifest,
            "m.tsv");
}

TEST(Job, RefusesAMissingOrSecondInput) {
  const auto expect = [](const char* text, const char* line) {
    EXPECT_EQ(input_error_of([&] { read(text); }), line);
  };

  expect("[output]\ndirectory = o\n",
         "a.ini: names no input; give model.path, model.manifest, activations.path or grams.paths");
  expect("[model]\npath = m\nmanifest = n\n",
         "a.ini: model.manifest = n: is given beside model.path; give one of the two");
  expect("[model]\npath = m\n[output]\ndirectory = o\n",
         "a.ini: tokens.path: is missing; a model needs a token file");
  expect("[grams]\npaths = g\n[tokens]\npath = t\n",
         "a.ini: tokens.path = t: is given beside grams.paths; give one of the two");
  expect("[model]\npath = m\n[tokens]\npath = t\n",
         "a.ini: output.directory: is missing; give the folder for the results");
  expect(
      "[grams]\npaths = g\n[cross]\nmodel = n\n[output]\ndirectory = o\n",
      "a.ini: cross.model = n: runs beside a model, and grams.paths is none; give a model, or leave it out");
  expect("[model]\npath = m\n[tokens]\npath = t\n[cross]\ngrams = g\n[output]\ndirectory = o\n",
         "a.ini: cross.grams = g: holds the Grams of a reference, and none is given; give cross.model, or "
         "leave it out");
  expect("[model]\npath = m\nselect = step0\n[tokens]\npath = t\n",
         "a.ini: model.select = step0: selects from a manifest, and none is given; give model.manifest or "
         "leave it out");
}

TEST(Job, CalibratesFromModelAndTokensOrFromGrams) {
  const auto calibrate = [](const std::string& text) {
    return make_job(Command::calibrate, "a.ini", read_job_text("a.ini", text + "[compress]\nplan = p.h5\n"));
  };
  const auto expect = [&](const char* text, const char* line) {
    EXPECT_EQ(input_error_of([&] { calibrate(text); }), line);
  };

  const std::string echo = to_ini(calibrate("[grams]\npaths = a.h5,b.h5\n"), Command::calibrate);

  EXPECT_NE(echo.find("\n[grams]\npaths = a.h5,b.h5\n"), std::string::npos) << echo;
  EXPECT_EQ(calibrate("[model]\npath = m\n[grams]\npaths = a.h5\n").model.path, "m");
  expect("", "a.ini: model.path: is missing; give the checkpoint that is to be compressed, or grams.paths");
  expect("[model]\npath = m\n", "a.ini: tokens.path: is missing; give the tokens to calibrate on");
  expect("[grams]\npaths = g\n[tokens]\npath = t\n",
         "a.ini: tokens.path = t: is given beside grams.paths; give one of the two");
}

TEST(Job, QuantisesWithoutTokens) {
  const GivenKeys given =
      read_job_text("a.ini", "[model]\npath = m\n[compress]\nalgorithm = quantise\nbits = 8\nplan = p.h5\n");

  EXPECT_EQ(make_job(Command::calibrate, "a.ini", given).tokens.path, "");
}

TEST(Job, CompressesOneCheckpointAsItIsStored) {
  const auto expect = [](const std::string& key, const std::string& line) {
    const GivenKeys given = read_job_text("a.ini", "[model]\npath = m\n" + key +
                                                       "\n[tokens]\npath = t\n[compress]\nplan = p.h5\n" +
                                                       "[evaluate]\nplan = p.h5\ntexts = t\n");
    for (const Command command : {Command::calibrate, Command::evaluate})
      EXPECT_EQ(input_error_of([&] { make_job(command, "a.ini", given); }),
                "a.ini: " + line + "; give model.path, and leave this to study");
  };

  expect("init = random", "model.init = random: draws weights, and stored ones are run");
  expect("init = pretrained,random",
         "model.init = pretrained,random: draws weights, and stored ones are run");
  expect("manifest = m.tsv", "model.manifest = m.tsv: names many checkpoints, and one is run");
  expect("select = step0", "model.select = step0: selects from a manifest");
}

TEST(Job, KnowsWhatItSaysItself) {
  const Job job = read_more("[predict]\ncapture = roped\n[model]\nname =\n");

  EXPECT_EQ(job.given.count("predict.capture"), 1u);
  EXPECT_EQ(job.given.count("predict.precision") + job.given.count("model.name"), 0u);
}

TEST(Job, LeavesCommentsOut) {
  const Job job = read_more("; one\n# two\n  ; three\n[run]\ngroups = 3 # inside\n");

  EXPECT_EQ(job.run.groups, 3);
}

TEST(Job, OneFileServesSeveralCommands) {
  const GivenKeys given =
      read_job_text("a.ini",
                    "[model]\npath = m\n[tokens]\npath = t\n[compress]\nplan = p.h5\nstored = 0.5\n"
                    "[evaluate]\nplan = p.h5\ntexts = a.bin,b.bin\n[output]\ndirectory = o\n");

  const std::string calibrate = to_ini(make_job(Command::calibrate, "a.ini", given), Command::calibrate),
                    evaluate = to_ini(make_job(Command::evaluate, "a.ini", given), Command::evaluate),
                    study = to_ini(make_job(Command::study, "a.ini", given));

  EXPECT_NE(calibrate.find("\n[compress]\nstreams = k,v\nstored = 0.5\n"), std::string::npos) << calibrate;
  EXPECT_EQ(calibrate.find("[evaluate]"), std::string::npos);
  EXPECT_NE(evaluate.find("\ntexts = a.bin,b.bin\n"), std::string::npos) << evaluate;
  EXPECT_EQ(evaluate.find("[compress]"), std::string::npos);
  EXPECT_EQ(study.find("[compress]") + study.find("[evaluate]"), 2 * std::string::npos);
}

TEST(Job, RefusesUnknownKeysWithTheNearestOne) {
  EXPECT_EQ(refusal("[tokens]\nlimmit = 5\n"),
            "a.ini: tokens.limmit = 5: is not a key; did you mean tokens.limit?");
  EXPECT_EQ(refusal("[model]\nlimit = 5\n"),
            "a.ini: model.limit = 5: is not a key; limit is a key of [tokens]");
  EXPECT_EQ(refusal("[predict]\nreference = 5\n"),  // a key of [evaluate]
            "a.ini: predict.reference = 5: is not a key; did you mean predict.references?");
  EXPECT_EQ(refusal("[run]\nenabled = 5\n"),
            "a.ini: run.enabled = 5: is not a key; enabled is a key of [ceiling], [overlap]");
  EXPECT_EQ(refusal("[grams]\nwhatever = 5\n"),
            "a.ini: grams.whatever = 5: is not a key; the keys of [grams] are paths");
  EXPECT_EQ(
      refusal("[nothing]\nwhatever = 5\n"),
      "a.ini: nothing.whatever = 5: is not a key; the sections are [model], [tokens], [activations], "
      "[grams], "
      "[predict], [cross], [ceiling], [overlap], [attention], [theory], [compress], [evaluate], [archive], "
      "[run], [output]");
  EXPECT_EQ(input_error_of([] { read("limit = 5\n"); }),
            "a.ini: limit = 5: is not a key; limit is a key of [tokens]");
}

TEST(Job, RefusesAKeyGivenTwiceAndALineThatIsNone) {
  EXPECT_EQ(refusal("[tokens]\nlimit = 5\nlimit = 6\n"),
            "a.ini: tokens.limit = 6: is given twice; keep one of the two lines");
  EXPECT_EQ(refusal("[tokens]\nlimit = 5\n[run]\n[tokens]\nlimit = 6\n"),
            "a.ini: tokens.limit = 6: is given twice; keep one of the two lines");
  EXPECT_EQ(refusal("[tokens]\nlimit\n"),
            "a.ini: the line 'limit' says nothing; [section], key = value, or # and a comment");
}

TEST(Job, RefusesMalformedValuesAndSaysWhatIsAllowed) {
  const auto expect = [](const std::string& lines, const std::string& line) {
    EXPECT_EQ(refusal(lines), "a.ini: " + line);
  };

  expect("[tokens]\nlimit = many\n",
         "tokens.limit = many: is not an integer; allowed: an integer of at least 1");
  expect("[tokens]\nlimit = 0\n", "tokens.limit = 0: is too small; allowed: an integer of at least 1");
  expect("[tokens]\nlimit = 3e4\n",
         "tokens.limit = 3e4: is not an integer; allowed: an integer of at least 1");
  expect("[tokens]\nlimit = 99999999999999999999\n",
         "tokens.limit = 99999999999999999999: is out of range; allowed: an integer of at least 1");
  expect("[tokens]\nlimit =\n",
         "tokens.limit = (nothing): is not an integer; allowed: an integer of at least 1");
  expect("[tokens]\nheldout = 1\n",
         "tokens.heldout = 1: is out of range; allowed: a number of at least 0 and below 1");
  expect("[tokens]\nheldout = nan\n",
         "tokens.heldout = nan: is out of range; allowed: a number of at least 0 and below 1");
  expect("[tokens]\nheldout = 25%\n",
         "tokens.heldout = 25%: is not a number; allowed: a number of at least 0 and below 1");
  expect("[tokens]\neos = 0,,1\n",
         "tokens.eos = 0,,1: holds an empty part; allowed: auto or a comma-separated list of an integer of "
         "at least 0");
  expect("[predict]\nstreams = k,x\n",
         "predict.streams = k,x: is not allowed; allowed: a comma-separated list of k|q|v|z");
  expect("[predict]\nstreams = k,k\n",
         "predict.streams = k,k: holds k twice; allowed: a comma-separated list of k|q|v|z");
  expect("[predict]\nprecision = tf32\n",
         "predict.precision = tf32: is not allowed; allowed: auto or float64|float32|split|bfloat16");
  expect("[ceiling]\nenabled = yes\n", "ceiling.enabled = yes: is not true or false; allowed: true|false");
  const std::string rule =
      ": cannot name a folder; allowed: 1 to 160 bytes of UTF-8 without '/' and control characters, not . or "
      "..";
  for (const std::string name : {"../x", "..", "a/b"})
    expect("[model]\nname = " + name + "\n", "model.name = " + name + rule);
  expect("[model]\nname = a\x1B[2J\n", "model.name = a\\x1B[2J" + rule);
  expect("[run]\ngrid = 6\n",
         "run.grid = 6: is not a grid; allowed: auto or PxQ, rows x columns of a process grid such as 2x3");
  expect("[run]\ngrid = 2x0\n",
         "run.grid = 2x0: is too small; allowed: auto or PxQ, rows x columns of a process grid such as 2x3");
  expect("[run]\nmemory_gib = 0\n", "run.memory_gib = 0: is out of range; allowed: auto or a number above 0");
  expect("[run]\ngpu_memory_gib = -1\n",
         "run.gpu_memory_gib = -1: is out of range; allowed: auto or a number above 0");
  expect("[overlap]\ntolerances = paper,2\n",
         "overlap.tolerances = paper,2: is out of range; allowed: a comma-separated list of paper or a "
         "number above 0 "
         "and below 1");
}

TEST(Job, OfThePaperHoldsNothingOutAndSelectsPairwise) {
  const Job job = read_more("[predict]\nmode = paper\n");

  EXPECT_EQ(job.tokens.heldout, 0);
  EXPECT_EQ(job.predict.selection, std::vector{SelectionRule::pairwise});
  EXPECT_EQ(to_ini(read_more("[predict]\nmode = paper\nselection = pairwise\n[tokens]\nheldout = 0\n")),
            to_ini(job));
  EXPECT_EQ(refusal("[predict]\nmode = paper\n[tokens]\nheldout = 0.25\n"),
            "a.ini: tokens.heldout = 0.25: contradicts predict.mode = paper; leave it out, or give 0");
  EXPECT_EQ(refusal("[predict]\nmode = paper\nselection = pairwise,forward\n"),
            "a.ini: predict.selection = pairwise,forward: contradicts predict.mode = paper; leave it out, or "
            "give pairwise");
}

TEST(Job, RefusesAPoolBelowTheReferences) {
  EXPECT_EQ(refusal("[predict]\nreferences = 20\n"),
            "a.ini: predict.pool = 16: is smaller than predict.references = 20; forward selection chooses "
            "the references "
            "from the pool");
  EXPECT_EQ(read_more("[predict]\nreferences = 20\nselection = pairwise\n").predict.references, 20);
}

TEST(Job, AllowsBfloat16ProductsOnlyAfterAHalfPrecisionForward) {
  EXPECT_NE(refusal("[predict]\nprecision = bfloat16\n[model]\ndtype = float32\n").find("half precision"),
            std::string::npos);
  EXPECT_EQ(read_more("[predict]\nprecision = bfloat16\n[model]\ndtype = float16\n").predict.precision,
            Precision::bfloat16);
}

TEST(Job, LeavesThePrecisionOfProductsToTheProcessors) {
  Job::Predict predict = read_more("[predict]\nprecision = auto\n").predict;
  EXPECT_EQ(predict.product(Dtype::bfloat16), Precision::float64);
  predict.integers = true;
  EXPECT_EQ(predict.product(Dtype::bfloat16), Precision::split);
  EXPECT_EQ(predict.product(Dtype::float32), Precision::split);
  EXPECT_EQ(predict.product(Dtype::float64), Precision::float64);  // has more digits than the integers
  predict.precision = Precision::float32;
  EXPECT_EQ(predict.product(Dtype::float64), Precision::float32);
}

TEST(Job, FilesThatComeWithTheProgramAreValid) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(HEADSPAN_TEST_DATA "/../../jobs")) {
    if (entry.path().extension() != ".ini") continue;
    ++files;
    const std::string path = entry.path().string();

    const GivenKeys given = read_job_file(path);
    const auto make = [&] {
      if (entry.path().stem() == "theorem2.1") return make_job(Command::theory, path, given);
      if (given.count("compress.plan") == 0) return make_job(Command::study, path, given);
      make_job(Command::calibrate, path, given);
      return make_job(Command::evaluate, path, given);
    };
    EXPECT_NO_THROW(make()) << input_error_of(make);
  }
  EXPECT_GT(files, 0);
}

TEST(JobOptions, AreEachReadWrittenAndExplained) {
  const Job defaults;
  std::string help;
  for (const CommandRow& row : commands()) help += job_options_help(row.command);
  for (const JobOption& option : job_options()) {
    Job job;

    if (!option.get(defaults).empty()) option.set(job, option.get(defaults));

    EXPECT_EQ(to_ini(job), to_ini(defaults)) << option.name;
    EXPECT_FALSE(option.help.empty()) << option.name;
    EXPECT_NE(help.find("\n  " + option.key()), std::string::npos) << option.name;
    EXPECT_EQ(find_job_option(option.name), &option);
  }
  EXPECT_EQ(find_job_option("tokens"), nullptr);
}

}  // namespace
}  // namespace headspan
