#include "dist/matrix/tile_exchange.h"

#include <algorithm>
#include <tuple>

#include "base/checked.h"

namespace headspan {
namespace {

/// The tiles by the rank that owns them, and the owner of each tile in the caller's order.
struct ByOwner {
  std::vector<std::vector<Tile>> tiles;
  std::vector<int> owner;
};

ByOwner sort_by_owner(const Matrix& matrix, std::int64_t size, const std::vector<Tile>& tiles) {
  HS_ASSERT(size > 0 && matrix.rows().block % size == 0);
  ByOwner result{std::vector<std::vector<Tile>>(to_size(matrix.grid().comm().size())), {}};
  result.owner.reserve(tiles.size());
  for (const Tile& tile : tiles) {
    HS_ASSERT(tile.row >= tile.column);
    const int owner = matrix.owner(tile.row * size, tile.column * size);
    result.owner.push_back(owner);
    result.tiles[to_size(owner)].push_back(tile);
  }
  return result;
}

/// Returns the offset of a tile in the local array of the rank that owns it.
std::int64_t local_offset(const Matrix& matrix, std::int64_t size, const Tile& tile) {
  return matrix.rows().local(tile.row * size) + matrix.columns().local(tile.column * size) * matrix.leading();
}

}  // namespace

TileViews view_tiles(const Matrix& matrix, std::int64_t size, const std::vector<Tile>& request) {
  const Comm& comm = matrix.grid().comm();
  const auto me = to_size(comm.rank());
  ByOwner asked = sort_by_owner(matrix, size, request);
  asked.tiles[me].clear();
  const auto requests = comm.exchange(asked.tiles);
  std::vector<std::vector<double>> replies(requests.size());
  for (std::size_t r = 0; r < requests.size(); ++r) {
    replies[r].resize(requests[r].size() * to_size(size * size));
    double* out = replies[r].data();
    for (const Tile& tile : requests[r]) {
      const double* in = matrix.data() + local_offset(matrix, size, tile);
      for (std::int64_t j = 0; j < size; ++j, out += size) std::copy_n(in + j * matrix.leading(), size, out);
    }
  }
  TileViews views{{}, comm.exchange(replies)};
  std::vector<std::int64_t> used(requests.size(), 0);
  for (std::size_t k = 0; k < request.size(); ++k) {
    const auto owner = to_size(asked.owner[k]);
    if (owner == me)
      views.tiles.push_back({matrix.data() + local_offset(matrix, size, request[k]), matrix.leading()});
    else
      views.tiles.push_back({views.received[owner].data() + size * size * used[owner]++, size});
  }
  return views;
}

std::vector<double> fetch_tiles(const Matrix& matrix, std::int64_t size, const std::vector<Tile>& request) {
  const TileViews views = view_tiles(matrix, size, request);
  std::vector<double> values;
  values.reserve(request.size() * to_size(size * size));
  for (const TileView& tile : views.tiles)
    for (std::int64_t j = 0; j < size; ++j) {
      const double* column = tile.values + j * tile.leading;
      values.insert(values.end(), column, column + size);
    }
  return values;
}

std::vector<Tile> requested_local_tiles(const Matrix& matrix, std::int64_t size,
                                        const std::vector<Tile>& request) {
  const auto before = [](const Tile& a, const Tile& b) {
    return std::tie(a.column, a.row) < std::tie(b.column, b.row);
  };
  const auto same = [](const Tile& a, const Tile& b) { return a.row == b.row && a.column == b.column; };
  std::vector<Tile> tiles;
  for (const auto& asked : matrix.grid().comm().exchange(sort_by_owner(matrix, size, request).tiles))
    tiles.insert(tiles.end(), asked.begin(), asked.end());
  std::sort(tiles.begin(), tiles.end(), before);
  tiles.erase(std::unique(tiles.begin(), tiles.end(), same), tiles.end());
  return tiles;
}

void store_tiles(Matrix& matrix, std::int64_t size, const std::vector<Tile>& tiles, const double* values) {
  const Comm& comm = matrix.grid().comm();
  const ByOwner sorted = sort_by_owner(matrix, size, tiles);
  std::vector<std::vector<double>> send(sorted.tiles.size());
  for (std::size_t k = 0; k < tiles.size(); ++k) {
    const double* tile = values + size * size * static_cast<std::int64_t>(k);
    auto& message = send[to_size(sorted.owner[k])];
    message.insert(message.end(), tile, tile + size * size);
  }
  const auto incoming = comm.exchange(sorted.tiles);
  const auto received = comm.exchange(send);
  for (std::size_t r = 0; r < incoming.size(); ++r) {
    const double* in = received[r].data();
    for (const Tile& tile : incoming[r]) {
      double* out = matrix.data() + local_offset(matrix, size, tile);
      for (std::int64_t j = 0; j < size; ++j, in += size) std::copy_n(in, size, out + j * matrix.leading());
    }
  }
}

}  // namespace headspan
