"""The seeded generator of Steele, Lea and Flood (2014)."""
MASK = (1 << 64) - 1


def splitmix64(seed, number):
    """Returns output `number`, counted from 0, of SplitMix64(seed)."""
    z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31
