"""Reads the sample file of test_netcdf.cpp with h5py, xarray and ncdump and compares it with the intended contents.

usage: check_netcdf.py FILE
"""
import importlib.util
import subprocess
import sys

import h5py
import numpy as np
import xarray

HEADS, HEAD_SIZE = 7, 3
TARGET, SOURCE = np.meshgrid(np.arange(HEADS), np.arange(HEADS), indexing="ij")
R2 = np.where(TARGET == SOURCE, np.nan, TARGET + SOURCE / 1000)
STATUS = np.where(TARGET == SOURCE, 16, (TARGET + SOURCE) % 4)
MEAN = 10 * TARGET[:, :HEAD_SIZE] + SOURCE[:, :HEAD_SIZE]
JOB = '[model]\npath = "Köpfe"\n'


def check_h5py(path):
    with h5py.File(path, "r") as file:
        assert file.attrs["headspan_schema"] == b"1.0" and file.attrs["job"].decode() == JOB and file.attrs["git"] == b""
        assert file.attrs["step"] == 3000
        k = file["k"]
        assert list(k.attrs["noise_floor"]) == [0.125, 0.25]
        np.testing.assert_array_equal(k["r2"][...], R2)
        np.testing.assert_array_equal(k["references"][...], TARGET[:, :2] - SOURCE[:, :2])
        assert [k["r2"].dtype, k["status"].dtype, k["mean"].dtype] == [np.float64, np.uint8, np.float32]
        assert k["r2"].dims[0][0] == k["target"] and k["r2"].dims[1][0] == k["source"]
        for group in (file["/"], k, file["tokens"], file["overlap"]):
            order = group.id.get_create_plist().get_link_creation_order()
            assert order == h5py.h5p.CRT_ORDER_TRACKED | h5py.h5p.CRT_ORDER_INDEXED, group
            assert group.id.get_create_plist().get_attr_creation_order() == order
        for name in ("r2", "target", "coordinate"):
            plist = k[name].id.get_create_plist()
            assert plist.get_attr_creation_order() == order
            assert plist.get_layout() == h5py.h5d.CONTIGUOUS and plist.get_fill_time() == h5py.h5d.FILL_TIME_NEVER


def check_xarray(path, engine):
    with xarray.open_dataset(path, engine=engine) as root:
        assert root.attrs["job"] == JOB
    with xarray.open_dataset(path, group="k", engine=engine) as k:
        np.testing.assert_array_equal(k.r2, R2)
        np.testing.assert_array_equal(k.status, STATUS)
        np.testing.assert_array_equal(k["mean"], MEAN)
        assert k.r2.dims == ("target", "source") and k["mean"].dims == ("target", "coordinate")
        assert set(k.coords) >= {"target", "source", "count", "layer", "head", "target_layer", "source_layer"}, k.coords
        assert "coordinate" not in k.variables and k.sizes["coordinate"] == HEAD_SIZE
        assert k.r2.sel(target=3, source=5) == 3.005 and k.target_layer.sel(target=3) == 13
        assert k.r2.attrs["long_name"] == "in-sample R²" and np.isnan(k.r2.encoding["_FillValue"])
        assert k.status.attrs["flag_meanings"] == "deficient_source constant_target not_computed"
        assert list(k.status.attrs["flag_masks"]) == [1, 2, 16] and k.status.attrs["flag_masks"].dtype == np.uint8
        assert k.canonical.dims == ("layer", "head", "head") and (k.canonical.values == 0.25).all()
        assert k.attrs["n_fit"] == 30000
    with xarray.open_dataset(path, group="tokens", engine=engine) as tokens:
        np.testing.assert_array_equal(tokens.start, [100, 101, 102, 103])
    with xarray.open_dataset(path, group="overlap", engine=engine) as overlap:
        assert list(overlap.projection.values) == ["q", "k", "v"]
        assert list(overlap.label.values) == ["loose", "tight"]
        assert overlap["rank"].sel({"projection": "k", "tolerance": 0.01}) == 4


def check_ncdump(path):
    header = subprocess.run(["ncdump", "-h", path], check=True, capture_output=True, text=True).stdout
    for line in ("target = 7 ;", "coordinate = 3 ;", "sequence = 4 ;", "double r2(target, source) ;",
                 "ubyte status(target, source) ;", "float mean(target, coordinate) ;", "int references(target, count) ;",
                 "int64 target(target) ;", "string projection(projection) ;", "r2:_FillValue = NaN ;",
                 'r2:coordinates = "target_layer source_layer" ;', "double canonical(layer, head, head) ;",
                 "status:flag_masks = 1UB, 2UB, 16UB ;"):
        assert line in header, line + "\n" + header
    assert "phony_dim" not in header and "double coordinate" not in header
    subprocess.run(["ncdump", path], check=True, stdout=subprocess.DEVNULL)


def main():
    path = sys.argv[1]
    check_h5py(path)
    check_ncdump(path)
    check_xarray(path, "h5netcdf")
    if importlib.util.find_spec("netCDF4"):
        check_xarray(path, "netcdf4")


main()
