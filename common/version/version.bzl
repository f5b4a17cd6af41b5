"""The version of Muster: what its programs say, and what its packages are named after."""

VERSION = "0.4.0"

# When this version was made, in seconds since 1970: the time of every file in a package, so that
# the same sources give the same bytes.
SOURCE_DATE_EPOCH = 1795651200
