from setuptools import setup

setup(name='ccm-bed', version='1', py_modules=['ccm_bed_neutron', 'ccm_bed_octavia'],
      entry_points={'neutron.ml2.mechanism_drivers': ['ccm_bed = ccm_bed_neutron:Driver'],
                    'octavia.network.drivers': ['ccm_bed = ccm_bed_octavia:Driver']})
