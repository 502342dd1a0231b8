"""Convolutions and filters, of the latter, stable ones."""

import numpy as np

from tests.scipy.samples.sample import between, sample

ROUNDED = 1e-12

for mode in ("full", "same", "valid"):
    sample("signal.convolve", between(-2, 2, 6), between(-2, 2, 3), mode=mode, smooth=True)
    sample("signal.convolve", between(-2, 2, 3), between(-2, 2, 6), mode=mode, smooth=True)
    sample("signal.convolve", between(-2, 2, 5), between(-2, 2, 4), mode, "fft", smooth=True, tolerance=ROUNDED)
    sample("signal.convolve", between(-2, 2, 3, 4), between(-2, 2, 2, 3), mode, smooth=True, tolerance=ROUNDED)
    sample("signal.convolve", between(-2, 2, 4, 4), between(-2, 2, 3, 3), mode, method="fft", smooth=True,
           tolerance=ROUNDED)
    sample("signal.correlate", between(-2, 2, 6), between(-2, 2, 3), mode=mode, smooth=True)
    sample("signal.correlate", between(-2, 2, 2, 3), between(-2, 2, 2, 2), mode, "fft", smooth=True, tolerance=ROUNDED)
    sample("signal.fftconvolve", between(-2, 2, 3, 4), between(-2, 2, 3, 3), mode, smooth=True, tolerance=ROUNDED)
    sample("signal.fftconvolve", between(-2, 2, 3, 4), between(-2, 2, 3, 3), mode, axes=1, smooth=True,
           tolerance=ROUNDED)
    sample("signal.fftconvolve", between(-2, 2, 5, 1), between(-2, 2, 3, 3), mode, axes=[0], smooth=True,
           tolerance=ROUNDED)
    sample("signal.oaconvolve", between(-2, 2, 5), between(-2, 2, 3), mode, smooth=True, tolerance=ROUNDED)
    for boundary in ("fill", "wrap", "symm"):
        sample("signal.convolve2d", between(-2, 2, 3, 4), between(-2, 2, 2, 3), mode, boundary, smooth=True,
               tolerance=ROUNDED)
    sample("signal.convolve2d", between(-2, 2, 3, 3), between(-2, 2, 2, 2), mode, fillvalue=1.5, smooth=True,
           tolerance=ROUNDED)
    sample("signal.correlate2d", between(-2, 2, 3, 4), between(-2, 2, 2, 3), mode, smooth=True, tolerance=ROUNDED)
sample("signal.convolve", between(-2, 2, 4) * (1 + 0.5j), between(-2, 2, 3) * (0.3 - 1j), smooth=True)
sample("signal.correlate", between(-2, 2, 4) * (1 + 0.5j), between(-2, 2, 3) * (0.3 - 1j), smooth=True)
sample("signal.convolve", np.arange(5), np.array([1, -2]))
sample("signal.convolve", np.arange(5), np.array([1, -2]), method="fft")
sample("signal.convolve", np.array(1.5), np.array(-0.5), smooth=True)
sample("signal.convolve", [1.0, 2.0, 3.0], [0.5, 0.5])

POLES, ZEROS = np.array([2.0, -0.6, 0.4]), np.array([1.0, 0.5])
sample("signal.lfilter", ZEROS, POLES, between(-2, 2, 5), smooth=True, tolerance=ROUNDED)
sample("signal.lfilter", np.array([1.0, 0.5, -0.2, 0.1]), np.array([1.0, 0.3]), between(-2, 2, 2, 5), smooth=True,
       tolerance=ROUNDED)
sample("signal.lfilter", ZEROS, POLES, between(-2, 2, 4, 2), axis=0, smooth=True, tolerance=ROUNDED)
sample("signal.lfilter", ZEROS, np.array([2.0]), between(-2, 2, 5), smooth=True, tolerance=ROUNDED)
sample("signal.lfilter", ZEROS, POLES, between(-2, 2, 4), zi=between(-1, 1, 2), smooth=True, tolerance=ROUNDED)
sample("signal.lfilter", ZEROS, POLES, between(-2, 2, 4, 2), 0, between(-1, 1, 2, 1), smooth=True, tolerance=ROUNDED)
SECTIONS = [[1.0, 0.5, 0.2, 1.0, -0.3, 0.1], [0.5, 0.1, 0.3, 1.0, 0.2, 0.3]]   # SciPy writes to arrays
sample("signal.sosfilt", SECTIONS, between(-2, 2, 5), smooth=True, tolerance=ROUNDED)
sample("signal.sosfilt", SECTIONS, between(-2, 2, 5), zi=between(-1, 1, 2, 2), smooth=True, tolerance=ROUNDED)

NUMERATOR, DENOMINATOR = np.array([0.3, 0.5, -0.2]), np.array([1.0, -0.4, 0.2])
sample("signal.freqz", NUMERATOR, DENOMINATOR, 5, smooth=True, tolerance=ROUNDED)
sample("signal.freqs", NUMERATOR, DENOMINATOR, np.array([0.5, 1.0, 2.0]), smooth=True, tolerance=ROUNDED)
sample("signal.freqz_zpk", between(-2, 2, 3), between(-0.5, 0.5, 2), 1.5, 4, smooth=True, tolerance=ROUNDED)
sample("signal.lombscargle", between(0, 9, 6), between(-2, 2, 6), np.array([0.7, 1.3]), smooth=True, has_shape=False,
       tolerance=ROUNDED)
sample("signal.vectorstrength", between(0, 9, 6), 2.0, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("signal.gausspulse", between(-2, 2, 6), 2.0, smooth=True, tolerance=ROUNDED)
sample("signal.sweep_poly", between(0, 2, 6), np.array([0.5, 1.0, 2.0]), smooth=True, tolerance=ROUNDED)
sample("signal.zpk2tf", between(-2, 2, 3), between(-0.5, 0.5, 2), 1.5, smooth=True, tolerance=ROUNDED)
sample("signal.invres", between(-2, 2, 2), between(1, 3, 2), [], smooth=True, has_shape=False, tolerance=ROUNDED)
sample("signal.invresz", between(-2, 2, 2), between(1, 3, 2), [], smooth=True, has_shape=False, tolerance=ROUNDED)
sample("signal.bilinear_zpk", between(-2, 2, 2), between(1, 3, 3), 1.5, 2.0, smooth=True, tolerance=ROUNDED)
sample("signal.kaiser_atten", 9, np.array(0.3), smooth=True)
sample("signal.gauss_spline", between(-2, 2, 5), 3, smooth=True)
sample("signal.normalize", NUMERATOR, DENOMINATOR, smooth=True, has_shape=False)
sample("signal.lp2lp_zpk", between(-2, 2, 2), between(1, 3, 3), 1.5, 2.0, smooth=True, tolerance=ROUNDED)
SYSTEM = tuple(map(np.array, ([[-1.0, 0.3], [0.2, -0.7]], [[1.0], [0.5]], [[0.4, 1.0]], [[0.2]])))
sample("signal.ss2tf", *SYSTEM, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("signal.tf2ss", NUMERATOR, DENOMINATOR, smooth=True, has_shape=False)
sample("signal.cont2discrete", SYSTEM, 0.5, smooth=True, tolerance=ROUNDED)
sample("signal.lsim", SYSTEM, between(-2, 2, 5), [0.0, 1.0, 2.0, 3.0, 4.0], smooth=True, has_shape=False,
       tolerance=ROUNDED)
SIGNAL, LONG = between(-2, 2, 12), between(-2, 2, 32)
sample("signal.hilbert", SIGNAL, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("signal.hilbert2", between(-2, 2, 3, 4), smooth=True, has_shape=False, tolerance=ROUNDED)
sample("signal.envelope", SIGNAL, smooth=True, has_shape=False, tolerance=1e-10)
sample("signal.resample", SIGNAL, 8, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("signal.czt", SIGNAL, 5, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("signal.zoom_fft", SIGNAL, [0.1, 0.3], 5, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("signal.wiener", SIGNAL, 3, smooth=True, has_shape=False, tolerance=1e-10)
sample("signal.deconvolve", between(1, 3, 6), between(1, 3, 3), smooth=True, has_shape=False, tolerance=1e-10)
sample("signal.spectrogram", LONG, nperseg=8, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("signal.stft", LONG, nperseg=8, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("signal.firwin", 7, np.array(0.3), smooth=True, has_shape=False, tolerance=ROUNDED)
sample("signal.firwin2", 7, [0.0, 0.5, 1.0], np.array([1.0, 0.9, 0.1]), smooth=True, has_shape=False, tolerance=ROUNDED)
sample("signal.kaiser_beta", np.array(65.0), smooth=True, has_shape=False)
sample("signal.cspline1d", SIGNAL, smooth=True, has_shape=False, tolerance=1e-10)
sample("signal.qspline1d", SIGNAL, smooth=True, has_shape=False, tolerance=1e-10)
sample("signal.sos2tf", np.array(SECTIONS), smooth=True, has_shape=False, tolerance=ROUNDED)
sample("signal.zpk2ss", between(-0.9, 0.9, 2), between(-0.5, 0.5, 3), 1.5, smooth=True, has_shape=False,
       tolerance=1e-10)
for name in ("group_delay", "bode", "freqresp", "dbode", "dfreqresp"):
    system = (NUMERATOR, DENOMINATOR, 0.1) if name in ("dbode", "dfreqresp") else (NUMERATOR, DENOMINATOR)
    sample(f"signal.{name}", system, np.array([0.5, 1.0, 2.0]), smooth=True, has_shape=False, tolerance=1e-10)
for name in ("impulse", "step"):
    sample(f"signal.{name}", SYSTEM, T=[0.0, 1.0, 2.0], smooth=True, has_shape=False, tolerance=1e-10)
DISCRETE = (*[0.3 * each for each in SYSTEM], 1.0)
for name in ("dimpulse", "dstep"):
    sample(f"signal.{name}", DISCRETE, n=4, smooth=True, has_shape=False, tolerance=1e-10)
sample("signal.dlsim", DISCRETE, SIGNAL, smooth=True, has_shape=False, tolerance=1e-10)
EDGE, EDGES = np.array(0.3), np.array([0.2, 0.45])
for name in ("butter", "bessel"):
    sample(f"signal.{name}", 3, EDGE, smooth=True, has_shape=False, tolerance=1e-10)
    sample(f"signal.{name}", 2, EDGES, "bandpass", output="zpk", smooth=True, has_shape=False, tolerance=1e-10)
sample("signal.cheby1", 3, 1.0, EDGE, smooth=True, has_shape=False, tolerance=1e-10)
sample("signal.cheby2", 3, 20.0, EDGE, smooth=True, has_shape=False, tolerance=1e-10)
sample("signal.ellip", 3, 1.0, 20.0, EDGE, smooth=True, has_shape=False, tolerance=1e-10)
sample("signal.iirfilter", 2, EDGES, btype="bandstop", smooth=True, has_shape=False, tolerance=1e-10)
sample("signal.gammatone", np.array(440.0), "fir", fs=16000, has_shape=False, smooth=True, tolerance=1e-9)
for name in ("lp2lp", "lp2hp"):
    sample(f"signal.{name}", NUMERATOR, DENOMINATOR, np.array(2.0), smooth=True, has_shape=False, tolerance=1e-10)
for name in ("lp2hp_zpk", "lp2bp_zpk", "lp2bs_zpk"):
    sample(f"signal.{name}", between(-2, 2, 2), between(1, 3, 3), 1.5, np.array(2.0), smooth=True, has_shape=False,
           tolerance=1e-10)
sample("signal.chirp", between(0, 1, 6), np.array(3.0), 1.0, np.array(6.0), smooth=True, has_shape=False,
       tolerance=1e-10)
for kind in ("linear", "constant"):
    sample("signal.detrend", SIGNAL, type=kind, smooth=True, has_shape=False, tolerance=1e-10)
sample("signal.savgol_filter", SIGNAL, 5, 2, smooth=True, has_shape=False, tolerance=1e-10)
sample("signal.savgol_coeffs", 5, 2, 1, np.array(0.5), smooth=True, has_shape=False, tolerance=1e-10)
sample("signal.periodogram", SIGNAL, smooth=True, has_shape=False, tolerance=1e-10)
sample("signal.welch", LONG, nperseg=8, smooth=True, has_shape=False, tolerance=1e-10)
for name in ("csd", "coherence"):
    sample(f"signal.{name}", LONG, LONG[::-1] ** 2, nperseg=8, smooth=True, has_shape=False, tolerance=1e-10)
sample("signal.istft", np.outer(between(1, 2, 5), between(1, 2, 6)) * (1 + 0.5j), nperseg=8, smooth=True,
       has_shape=False, tolerance=1e-10)
for name in ("iirnotch", "iirpeak"):
    sample(f"signal.{name}", np.array(0.3), np.array(5.0), smooth=True, has_shape=False, tolerance=1e-10)
sample("signal.iircomb", 0.25, np.array(5.0), smooth=True, has_shape=False, tolerance=1e-10)
for name in ("argrelmax", "argrelmin"):
    sample(f"signal.{name}", SIGNAL, batches=False, has_shape=False)
sample("signal.argrelextrema", SIGNAL, np.greater, batches=False, has_shape=False)
for name in ("check_COLA", "check_NOLA"):
    sample(f"signal.{name}", np.hanning(8), 8, 4, batches=False, has_shape=False)
