#include "app/inspect/result_table.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>

#include "app/inspect/text_table.h"

namespace headspan {
namespace {

using Results = std::vector<ResultSummary>;

std::string upper(std::string text) {
  for (char& letter : text) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return text;
}

std::string number(double value) {
  std::string text(32, '\0');
  text.resize(static_cast<std::size_t>(std::snprintf(text.data(), text.size(), "%.3g", value)));
  return text;
}

/// Returns the heading of a table: what the figures of a result depend on besides its checkpoint. Only
/// results with the same setting are compared.
std::string setting(const ResultSummary& result) {
  const StreamSummary& first = result.streams.front();
  std::string heads;
  for (const StreamSummary& stream : result.streams)
    heads += (heads.empty() ? "" : ", ") + upper(stream.name) + " " + std::to_string(stream.heads) +
             " heads in " + std::to_string(stream.layers) + " layers";
  const std::string size = std::to_string(first.head_size);
  return result.model_name + (result.model_type.empty() ? "" : " (" + result.model_type + ")") + ", mode " +
         result.mode + "; captured " + first.capture +
         "; tokens: " + (result.tokens_path.empty() ? "" : result.tokens_path + ", ") + "n_fit " +
         std::to_string(first.n_fit) + ", n_heldout " + std::to_string(first.n_heldout) + "\n" + heads +
         "; head size d = " + size +
         ", hidden size m = " + (first.hidden_size > 0 ? std::to_string(first.hidden_size) : "unknown") +
         "\nnoise floor d/(n_fit-1) = " + number(first.noise_floor) +
         (first.noise_floor < 1 ? "" : " (too few tokens: no R2)") +
         ", geometric null d/m = " + number(first.geometric_null) + "\n";
}

constexpr const char* kLegend =
    "  mean, med.  mean and median over heads: in-sample R2 from the best source, a head of the same or an "
    "earlier layer\n"
    "  >0.1, >0.5  share of the (target, source) pairs with an in-sample R2 above it\n"
    "  held        mean over heads: R2 on held-out tokens from that same best source\n"
    "  rank        mean over heads: effective rank, of at most d; R2 also rises where activations collapse\n"
    "  null        the same of heads that share nothing: random projections, in-sample figures with the "
    "noise floor\n";

/// Returns `text`, followed by "random" if the unit's weights were drawn.
std::string marked(const std::string& text, const ResultSummary& result) {
  const bool has_word = text.size() >= 6 && text.substr(text.size() - 6) == "random";
  return text + (result.random && !has_word ? " random" : "");
}

/// Returns how many tokens the weights were trained on; empty if that is unknown, or they were drawn.
std::string trained_on(const ResultSummary& result) {
  return result.training_tokens < 0 || result.random ? "" : format_count(result.training_tokens);
}

/// Returns the labels of the rows: their steps if all differ, else their checkpoints.
TextColumn labels(const Results& rows) {
  TextColumn steps{"", "step", {}}, names{"", "checkpoint", {}};
  for (const ResultSummary& row : rows) {
    if (row.step >= 0) steps.cells.push_back(marked(std::to_string(row.step), row));
    names.cells.push_back(marked(row.checkpoint, row));
  }
  const std::set<std::string> distinct(steps.cells.begin(), steps.cells.end());
  return distinct.size() == rows.size() ? steps : names;
}

using Cell = std::string (*)(const StreamSummary& stream, const PairFigures& figures);

struct Figure {
  const char* title;  ///< in the table of several results; empty: not shown there
  const char* name;   ///< in the table of one result
  Cell cell;          ///< formats the figures found, or those of the null
};

std::string heldout(const StreamSummary& stream, double value) {
  return stream.n_heldout > 0 ? format_share(value) : "";
}

bool is_null(const StreamSummary& stream, const PairFigures& figures) { return &figures == &stream.null; }

const std::vector<Figure>& figures() {
  static const std::vector<Figure> all{
      {"mean", "R2 from the best source, mean",
       [](const auto&, const auto& f) { return format_share(f.mean_best); }},
      {"", "  adjusted",
       [](const auto& s, const auto& f) { return is_null(s, f) ? "" : format_share(s.adjusted_best); }},
      {"med.", "R2 from the best source, median",
       [](const auto&, const auto& f) { return format_share(f.median_best); }},
      {"", "R2 of all pairs, mean", [](const auto&, const auto& f) { return format_share(f.mean_pair); }},
      {">0.1", "share of pairs above 0.1",
       [](const auto&, const auto& f) { return format_share(f.share_above_tenth); }},
      {">0.5", "share of pairs above 0.5",
       [](const auto&, const auto& f) { return format_share(f.share_above_half); }},
      {"held", "held-out R2 from the best source, mean",
       [](const auto& s, const auto& f) { return heldout(s, f.mean_best_heldout); }},
      {"", "held-out R2 from the best source, median",
       [](const auto& s, const auto& f) { return heldout(s, f.median_best_heldout); }},
      {"rank", "effective rank of a head, mean",
       [](const auto& s, const auto& f) { return is_null(s, f) ? "" : format_figure(s.effective_rank); }}};
  return all;
}

std::string format_many(const Results& rows) {
  std::vector<TextColumn> table{labels(rows), {"", "tokens", {}}};
  for (const ResultSummary& row : rows) table[1].cells.push_back(trained_on(row));
  table[0].cells.push_back("null");
  table[1].cells.push_back("");
  for (std::size_t s = 0; s < rows.front().streams.size(); ++s)
    for (const Figure& figure : figures()) {
      if (*figure.title == '\0') continue;
      TextColumn column{upper(rows.front().streams[s].name), figure.title, {}};
      for (const ResultSummary& row : rows)
        column.cells.push_back(figure.cell(row.streams[s], row.streams[s].found));
      column.cells.push_back(figure.cell(rows.front().streams[s], rows.front().streams[s].null));
      table.push_back(column);
    }
  return kLegend + std::string("\n") + format_table(table);
}

/// Formats what heads of one stream or model say of those of another; empty if the result does not say.
std::string format_cross(const ResultSummary& result) {
  if (result.cross.empty()) return "";
  std::vector<TextColumn> table{{"", "sources-targets", {}}, {"heads", "sources", {}},
                                {"heads", "targets", {}},    {"best source", "R2", {}},
                                {"best source", "held", {}}, {"whole layer", "held", {}}};
  const auto share = [](double value) { return std::isnan(value) ? "" : format_share(value); };
  for (const CrossSummary& cross : result.cross) {
    const std::vector<std::string> row{cross.name,
                                       std::to_string(cross.sources),
                                       std::to_string(cross.targets),
                                       share(cross.mean_best),
                                       share(cross.mean_best_heldout),
                                       share(cross.mean_layer_heldout)};
    for (std::size_t c = 0; c < row.size(); ++c) table[c].cells.push_back(row[c]);
  }
  return "\nheads of one stream" +
         (result.reference.empty() ? std::string() : " or of the reference " + result.reference) +
         " that predict heads of another, any of them, means over the targets\n\n" + format_table(table);
}

/// Formats a single result in a transposed table: one row per figure, one column per stream and one per null.
std::string format_one(const ResultSummary& result) {
  std::vector<TextColumn> table{{"", "", {}}};
  for (const StreamSummary& stream : result.streams)
    for (const char* title : {"found", "null"}) table.push_back({upper(stream.name), title, {}});
  for (const Figure& figure : figures()) {
    std::vector<std::string> row{figure.name};
    for (const StreamSummary& stream : result.streams)
      for (const PairFigures* values : {&stream.found, &stream.null})
        row.push_back(figure.cell(stream, *values));
    if (std::all_of(row.begin() + 1, row.end(), [](const auto& cell) { return cell.empty(); })) continue;
    for (std::size_t c = 0; c < row.size(); ++c) table[c].cells.push_back(row[c]);
  }
  return "checkpoint " + marked(result.checkpoint, result) +
         (result.step < 0 ? "" : ", step " + std::to_string(result.step)) +
         (trained_on(result).empty() ? "" : ", trained on " + trained_on(result) + " tokens") + "; " +
         result.source + ", " + result.date_created + ", schema " + result.schema +
         "\nbest source: a head of the same or an earlier layer; null: heads that share nothing, random "
         "projections\n\n" +
         format_table(table) + format_cross(result);
}

std::string flagged(const Results& rows) {
  std::string text;
  for (const ResultSummary& row : rows)
    for (const StreamSummary& stream : row.streams)
      if (stream.flagged > 0)
        text += (text.empty() ? "" : ", ") + row.checkpoint + " " + upper(stream.name) + " " +
                std::to_string(stream.flagged);
  if (text.empty()) return "";
  return "flagged pairs (a deficient source, a constant target or an R2 outside [0, 1]; see variable "
         "status): " +
         text + "\n";
}

}  // namespace

std::string format_results(Results results) {
  std::map<std::string, Results> tables;
  for (ResultSummary& result : results) tables[setting(result)].push_back(std::move(result));
  std::string text;
  for (auto& [heading, rows] : tables) {
    std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
      return std::tie(a.step, a.random, a.checkpoint) < std::tie(b.step, b.random, b.checkpoint);
    });
    text += (text.empty() ? "" : "\n") + heading;
    text += (rows.size() == 1 ? format_one(rows.front()) : format_many(rows)) + flagged(rows);
  }
  return text;
}

}  // namespace headspan
